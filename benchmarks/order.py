"""The order of reads and updates: the pipeline over a plain table against training written out by hand, to the bit.

Plain torch, on CPU and on CUDA alike. Reads, updates and the network are held up at random, and memory that was just
freed is filled with NaN, so that a wrong order, or memory used again too early, shows in the numbers. Ids of a batch
are distinct, so no sum depends on an order of its own; consecutive batches share half of them.

Shape suffixes: R rows of the table, N ids of a batch, D width of a row.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from trainer.semisync.forward import Mode, PrefetchingForward
from trainer.semisync.lane import ThreadLane
from trainer.semisync.lookahead import Lookahead

SITE = "pin"
RATE = 0.1
NUM_ROWS, NUM_IDS, DIM, NUM_BATCHES = 256, 128, 64, 12
THAW = 4
"""The tables are frozen in the steps before it."""
CYCLES_PER_MS = 2_000_000  # of a GPU at about 2 GHz

Pause = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a run leaves: the loss of each batch, the table and the network; on CPU."""

    losses: Tensor
    rows_RD: Tensor
    weight_D: Tensor

    def is_same(self, other: "Trained") -> bool:
        """Whether all bits are."""
        return all(torch.equal(value, vars(other)[name]) for name, value in vars(self).items())


@dataclass(kw_only=True)
class Sent:
    """Ids on the lane, and what was read for them."""

    ids_N: Tensor
    rows_ND: Tensor | None = None
    num_updates: int = 0


class PlainTable:
    """A table in this process behind the lookup seam, trained by plain SGD.

    Args:
        rows_RD: Its first rows.
        pause: Called before each leg.
    """

    def __init__(self, rows_RD: Tensor, pause: Pause = lambda: None) -> None:
        self.rows_RD = rows_RD.clone()
        self._pause = pause
        self._num_updates = 0
        self._updated_at_R = torch.zeros(len(rows_RD), dtype=torch.int64, device=rows_RD.device)

    def send(self, ids: Mapping[str, Tensor]) -> Sent:
        """See `trainer.embeddings.lookup.Lookup.send`."""
        self._pause()
        return Sent(ids_N=ids[SITE].clone())

    def read(self, sent: Sent, *, adapting: bool) -> dict[str, Tensor]:
        """See `trainer.embeddings.lookup.Lookup.read`."""
        self._pause()
        rows_ND = self.rows_RD.index_select(0, sent.ids_N)
        sent.rows_ND, sent.num_updates = rows_ND, self._num_updates
        spoil(rows_ND)
        if not adapting:
            return {SITE: rows_ND}
        return {SITE: _Updating.apply(rows_ND.detach().requires_grad_(), self, sent.ids_N)}  # type: ignore[no-untyped-call]

    def refresh(self, sent: Sent) -> dict[str, Tensor]:
        """See `trainer.semisync.forward.Refreshable.refresh`."""
        assert sent.rows_ND is not None
        self._pause()
        is_stale_N = self._updated_at_R[sent.ids_N] > sent.num_updates
        fresh_ND = torch.where(is_stale_N.unsqueeze(1), self.rows_RD.index_select(0, sent.ids_N), sent.rows_ND)
        spoil(fresh_ND)
        return {SITE: fresh_ND}

    def update(self, ids_N: Tensor, gradients_ND: Tensor) -> None:
        """A step of SGD on distinct rows."""
        self._pause()
        self._num_updates += 1
        self._updated_at_R.index_fill_(0, ids_N, self._num_updates)
        self.rows_RD.index_copy_(0, ids_N, _updated(self.rows_RD.index_select(0, ids_N), gradients_ND))

    def settle(self) -> None:
        """See `trainer.embeddings.lookup.Lookup.settle`."""


class _Updating(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_ND: Tensor, table: PlainTable, ids_N: Tensor) -> Tensor:
        ctx.table, ctx.ids_N = table, ids_N
        return rows_ND.view_as(rows_ND)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.table.update(ctx.ids_N, *gradients)
        return None, None, None


class _Network:
    """Learns beside the table; the loss of a batch depends on all that came before."""

    def __init__(self, weight_D: Tensor, pause: Pause = lambda: None) -> None:
        self._pause = pause
        self.weight_D = weight_D.clone().requires_grad_()
        self.losses: list[Tensor] = []

    def step(self, rows_ND: Tensor) -> None:
        """Leaves gradients on rows that want some, and learns."""
        self._pause()
        spoil(rows_ND)
        loss = (rows_ND * self.weight_D).sum(dim=1).tanh().square().sum()
        torch.autograd.backward(loss)
        self._pause()
        assert self.weight_D.grad is not None
        with torch.no_grad():
            self.weight_D -= RATE * self.weight_D.grad
        self.weight_D.grad = None
        self.losses.append(loss.detach())  # read at the end only: a GPU that is waited for hides what overtakes what


class _NoWaits(ThreadLane):
    """A lane whose results are taken before the GPU has them."""

    def wait(self, future: Any) -> Any:
        return future.result()


class _Setting:
    """The same first rows, network and batches whenever they are made from a seed."""

    def __init__(self, device: torch.device, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.rows_RD = torch.randn(NUM_ROWS, DIM, generator=generator).to(device)
        self.weight_D = torch.randn(DIM, generator=generator).to(device)
        self.batches = [torch.randperm(NUM_ROWS, generator=generator)[:NUM_IDS].to(device) for _ in range(NUM_BATCHES)]

    def trained(self, network: _Network, rows_RD: Tensor) -> Trained:
        losses, weight_D = torch.stack(network.losses).cpu(), network.weight_D.detach().cpu()
        return Trained(losses=losses, rows_RD=rows_RD.cpu(), weight_D=weight_D)


def by_hand(device: torch.device, seed: int, *, staleness: Literal[0, 1]) -> Trained:
    """Every batch reads the table as it is before, or after, the last update; no pipeline, no thread, one stream."""
    setting = _Setting(device, seed)
    rows_RD, network = setting.rows_RD.clone(), _Network(setting.weight_D)
    due: tuple[Tensor, Tensor] | None = None
    for number, ids_N in enumerate(setting.batches):
        if staleness == 0:
            _make_update(rows_RD, due)
        leaf_ND = rows_RD[ids_N].requires_grad_(number >= THAW)
        if staleness == 1:
            _make_update(rows_RD, due)
        network.step(leaf_ND)
        due = None if leaf_ND.grad is None else (ids_N, leaf_ND.grad)
    _make_update(rows_RD, due)
    return setting.trained(network, rows_RD)


def through_pipeline(device: torch.device, seed: int, *, mode: Mode, waits: bool = True) -> Trained:
    """The same through `PrefetchingForward`, held up at random.

    Args:
        device: Of all tensors.
        seed: Of rows, batches and pauses.
        mode: Of the pipeline.
        waits: Without them, on CUDA, the result is wrong: that is how to tell that a wrong order shows.
    """
    setting = _Setting(device, seed)
    table = PlainTable(setting.rows_RD, _pauses(device, seed))
    network = _Network(setting.weight_D, _pauses(device, seed + 1))
    forward = PrefetchingForward(table, mode=mode, device=device)
    if not waits:
        forward._lane = _NoWaits(device)
    batches = Lookahead(setting.batches, lambda ids_N: {SITE: ids_N})
    for step in forward.steps(batches, adapts=lambda number: number >= THAW):
        network.step(step.rows[SITE])
    return setting.trained(network, table.rows_RD)


def check_order(device: torch.device, *, num_trials: int) -> dict[str, bool]:
    """Each mode against training by hand, over seeds.

    Returns:
        By mode, whether all trials gave the same bits; ``staleness_shows``, whether stale and fresh training differ at
        all; and on CUDA ``race_shows``, whether a pipeline that does not wait for the GPU differs, without which the
        others would prove nothing.
    """
    seeds = range(0, 2 * num_trials, 2)
    fresh = {seed: by_hand(device, seed, staleness=0) for seed in seeds}
    stale = {seed: by_hand(device, seed, staleness=1) for seed in seeds}
    found = {
        mode: all(
            through_pipeline(device, seed, mode=mode).is_same((stale if mode == "semi" else fresh)[seed])
            for seed in seeds
        )
        for mode in get_args(Mode)
    }
    found["staleness_shows"] = all(not fresh[seed].is_same(stale[seed]) for seed in seeds)
    if device.type == "cuda":
        found["race_shows"] = any(
            not through_pipeline(device, seed, mode="semi", waits=False).is_same(stale[seed]) for seed in seeds
        )
    return found


def spoil(like: Tensor) -> None:
    """Fills memory that the allocator holds free for this thread's stream, in a tensor's size, with NaN."""
    held = [torch.full_like(like, float("nan")) for _ in range(3)]
    held.clear()


def _updated(rows_ND: Tensor, gradients_ND: Tensor) -> Tensor:
    return rows_ND - RATE * gradients_ND


def _make_update(rows_RD: Tensor, due: tuple[Tensor, Tensor] | None) -> None:
    if due is not None:
        ids_N, gradients_ND = due
        rows_RD[ids_N] = _updated(rows_RD[ids_N], gradients_ND)


def _pauses(device: torch.device, seed: int) -> Pause:
    """Holds up the current stream, on CPU the thread, for 0 to 3 ms."""
    chance = random.Random(seed)

    def pause() -> None:
        pause_ms = chance.choice([0, 0, 1, 3])
        if device.type == "cuda":
            torch.cuda._sleep(pause_ms * CYCLES_PER_MS)  # type: ignore[no-untyped-call]
        else:
            time.sleep(pause_ms / 1000)

    return pause
