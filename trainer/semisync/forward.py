"""Lookups that run ahead of the network: the semi-synchronous pipeline.

An existing loop is wrapped in two lines::

    forward = PrefetchingForward(lookup, mode="semi", device=device)
    for step in forward.steps(Lookahead(batches, ids_of)):
        loss = model(step.batch, step.rows)
        loss.backward()
        optimizer.step()

``step.rows`` are leaves. The gradients that a step leaves on them go back to the tables when the next step is asked
for.

Updates, reads and ids queue up on one lane (`trainer.semisync.lane`). When step B begins, the lane is given, in this
order: update B-1, the read of batch B+1, the ids of batch B+2. Beside them the network runs B. So

- batch B reads the state after update B-2, on any device: it is at most one update stale;
- the gradients of B-1 travel while the network runs B forward and backward, as do the rows of B+1;
- the order is the same on every rank, so collectives meet.

While tables are frozen there is nothing to be stale against, and reads run as far ahead as ``depth`` says. Nothing is
read across a thaw or a freeze, and nothing is left on the lane when the steps of a pass end.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from trainer.ranges import named_range
from trainer.semisync.evidence import Evidence, Meter
from trainer.semisync.lane import InlineLane, Lane, ThreadLane
from trainer.semisync.lookahead import Coming, Lookahead

if TYPE_CHECKING:  # a GPU's checks run on plain torch
    from trainer.embeddings.lookup import Lookup, Rows

B = TypeVar("B")
T = TypeVar("T")

Mode = Literal["sync", "semi", "exact"]


@runtime_checkable
class Refreshable(Protocol):
    """A lookup that can read again what has changed."""

    def refresh(self, sent: Any) -> "Rows":
        """Rows as `Lookup.read` would give them now, outside autograd."""
        ...


@dataclass(frozen=True, kw_only=True)
class Step(Generic[B]):
    """What the network needs for a step.

    Attributes:
        number: Which of the pass, from 0.
        batch: The batch.
        ids: What it looked up.
        rows: Rows of each call site; leaves, which want gradients when the tables adapt.
        adapting: Whether they do.
    """

    number: int
    batch: B
    ids: Any
    rows: "Rows"
    adapting: bool


class PrefetchingForward:
    """Runs lookups ahead of the network that reads them.

    Args:
        lookup: The tables; nothing else may look them up while steps are taken.
        mode: ``sync`` looks up when a step begins, on the caller's thread. ``semi`` looks up one batch ahead; rows are
            at most one update stale. ``exact`` does too, then reads again those rows that the last update touched: the
            same as ``sync``, bit for bit.
        device: Of the rows.
        depth: Batches that are read ahead while the tables are frozen, unless ``sync``.

    Raises:
        ValueError: ``exact``, and the lookup cannot refresh.
    """

    def __init__(self, lookup: "Lookup", *, mode: Mode, device: torch.device, depth: int = 2) -> None:
        if mode == "exact" and not isinstance(lookup, Refreshable):
            raise ValueError(f"mode 'exact' needs a lookup that can refresh, which {type(lookup).__name__} cannot")
        self._lookup, self._mode, self._depth = lookup, mode, depth
        self._lane: Lane = InlineLane() if mode == "sync" else ThreadLane(device)
        self._meter = Meter(device)

    def steps(
        self,
        batches: Lookahead[B],
        *,
        adapts: Callable[[int], bool] = lambda number: True,
        prepare: Callable[[int], None] = lambda number: None,
    ) -> Iterator[Step[B]]:
        """Takes one pass's steps; when they end, every update has been made.

        Args:
            batches: The pass.
            adapts: Whether the tables adapt in a step, by its number; pure.
            prepare: Readies the tables for a step that adapts (optimizer state, step size), by its number; called on
                the lane before each of its reads and updates.

        Raises:
            Exception: What a lookup raised, with a note that names the batch.
        """
        asked: deque[_Asked] = deque()
        while (coming := batches.peek(0)) is not None:
            adapting = adapts(coming.number)
            self._ask(asked, batches, adapting=adapting, adapts=adapts, prepare=prepare)
            batches.take()
            yield from self._step(coming, asked.popleft(), adapting=adapting, prepare=prepare)
        self._drain()

    def take_evidence(self) -> Evidence:
        """Time of lookups since the last call."""
        found = self._meter.take()
        return found if self._mode != "sync" else replace(found, exposed_s=found.lookup_s)

    def _ask(
        self,
        asked: "deque[_Asked]",
        batches: Lookahead[B],
        *,
        adapting: bool,
        adapts: Callable[[int], bool],
        prepare: Callable[[int], None],
    ) -> None:
        """Puts on the lane what may go there before the next step: reads, and ids one batch further."""
        reach = 0 if self._mode == "sync" else 1 if adapting else self._depth
        for distance in range(reach + 1):
            coming = batches.peek(distance)
            if coming is None or adapts(coming.number) != adapting:
                return
            if distance == len(asked):
                asked.append(_Asked(sent=self._send(coming)))
            this = asked[distance]
            if this.read is None:
                this.read = self._read(coming, this.sent, adapting=adapting, prepare=prepare)
            if distance == 0 and adapting and self._mode == "exact":
                this.refreshed = self._refresh(coming, this.sent)
        beyond = batches.peek(reach + 1) if reach else None
        if beyond is not None and reach + 1 == len(asked):
            asked.append(_Asked(sent=self._send(beyond)))

    def _send(self, coming: Coming[B]) -> "Future[Any]":
        def send() -> Any:
            with named_range("lookup: send ids"), self._meter.lookup():
                return self._lookup.send(coming.ids)

        return self._lane.submit(_named(send, coming.number), uses=coming.ids)

    def _read(
        self, coming: Coming[B], sent: "Future[Any]", *, adapting: bool, prepare: Callable[[int], None]
    ) -> "Future[Rows]":
        def read() -> "Rows":
            if adapting:
                prepare(coming.number)
            with named_range("lookup: read rows"), self._meter.lookup():
                return self._lookup.read(sent.result(), adapting=adapting)

        return self._lane.submit(_named(read, coming.number))

    def _step(
        self, coming: Coming[B], asked: "_Asked", *, adapting: bool, prepare: Callable[[int], None]
    ) -> Iterator[Step[B]]:
        assert asked.read is not None
        with named_range("lookup: wait"), self._meter.exposed():
            read = self._lane.wait(asked.read)
            rows = read if asked.refreshed is None else self._lane.wait(asked.refreshed)
        self._meter.step()
        leaves = {site: values.detach().requires_grad_(adapting) for site, values in rows.items()}
        yield Step(number=coming.number, batch=coming.batch, ids=coming.ids, rows=leaves, adapting=adapting)
        if adapting:
            self._update(coming.number, read, leaves, prepare)

    def _refresh(self, coming: Coming[B], sent: "Future[Any]") -> "Future[Rows]":
        def refresh() -> "Rows":
            assert isinstance(self._lookup, Refreshable)
            with named_range("lookup: refresh rows"), self._meter.lookup():
                return self._lookup.refresh(sent.result())

        return self._lane.submit(_named(refresh, coming.number))

    def _update(self, number: int, read: "Rows", leaves: "Rows", prepare: Callable[[int], None]) -> None:
        gradients = [_gradient(leaf) for leaf in leaves.values()]

        def update() -> None:
            prepare(number)
            with named_range("lookup: update"):
                torch.autograd.backward(list(read.values()), gradients)
                self._lookup.settle()

        self._lane.submit(_named(update, number), uses=gradients)

    def _drain(self) -> None:
        self._lane.wait(self._lane.submit(lambda: None))


@dataclass
class _Asked:
    """What the lane was asked for on behalf of a batch."""

    sent: "Future[Any]"
    read: "Future[Rows] | None" = None
    refreshed: "Future[Rows] | None" = None


def _gradient(leaf: Tensor) -> Tensor:
    """What a step left on a leaf; zeros where no loss reached it, for the way back is collective."""
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _named(task: Callable[[], T], number: int) -> Callable[[], T]:
    def run() -> T:
        try:
            return task()
        except Exception as error:
            error.add_note(f"in the lookup of batch {number} of this pass (counted from 0)")
            raise

    return run
