"""The tables of a training run: split by rows over ranks, each part with row-wise Adagrad fused into its lookups.

A backward pass through looked-up rows updates them at once; there is no separate optimizer step for tables.

All tables of a rank lie in one tensor (`Layout`), so a lookup of all call sites is one gather, one exchange of ids and
one of rows, and an update is one fused kernel. Ids are deduplicated before they travel, over call sites too: each row
that a batch reads is sent once, and so is its gradient. What is left has exactly one id a row, so no lengths travel and
nothing is pooled.

Shape suffixes: N ids of all call sites, U distinct ones, S slots of this rank, T those that a step reads, D width of
a row.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.embeddings.exchange import Exchange, Precision
from trainer.embeddings.fused import fused_rows
from trainer.embeddings.layout import Layout
from trainer.embeddings.lookup import SITES_OF_TABLE, TABLE_OF_SITE, Ids, Rows, num_rows_of
from trainer.recipe import TablesConfig

_SHARED_EVERY = 64


class RowUpdate(Protocol):
    """Decides what becomes of the fused optimizer's update of single rows."""

    def apply(self, old_TD: Tensor, new_TD: Tensor, counts_T: Tensor, interval_T: Tensor) -> Tensor:
        """The rows (T, D) to keep.

        Args:
            old_TD: The rows before the update.
            new_TD: The rows after it.
            counts_T: How often the window shows each.
            interval_T: Steps since each was last touched.
        """
        ...


@dataclass(kw_only=True)
class Sent:
    """Ids where their rows are.

    Attributes:
        sizes: Ids of each call site.
        slots_T: int64, the slots that were asked for on this rank, by the ranks that asked, one after another.
        places_N: Which of the rows that come back each id reads; None when they come back in the order of the ids.
        sent: How many ids went to each rank.
        received: How many came from each.
        num_updates: Updates that the rows held when they were read.
        rows_UD: The rows that came back.
    """

    sizes: Mapping[str, int]
    slots_T: Tensor
    places_N: Tensor | None
    sent: list[int]
    received: list[int]
    num_updates: int = 0
    rows_UD: Tensor | None = None

    def by_site(self, rows_UD: Tensor) -> Rows:
        """The rows of each call site."""
        rows_ND = rows_UD if self.places_N is None else rows_UD.index_select(0, self.places_N)
        return dict(zip(self.sizes, torch.split(rows_ND, list(self.sizes.values())), strict=True))


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What lookups and updates sent.

    Attributes:
        num_collectives: Collectives.
        num_bytes: Bytes to other ranks.
        shared_ids: Of the rows that a batch read on this rank, the share that the batch before it had read too; mean
            over every `_SHARED_EVERY`-th batch. Only those can be stale.
    """

    num_collectives: int
    num_bytes: int
    shared_ids: float


class ShardedTables:
    """User and pin tables, split by rows over the ranks of the default process group.

    Rows start from a normal distribution with standard deviation 1 / sqrt(D), the same whatever the number of ranks, or
    from zeros, to be loaded.

    Args:
        config: Sizes.
        learning_rate: Step size of the fused optimizer.
        device: Where this rank's rows lie.
        seed: Seed of the first rows; None leaves them zero.
        row_update: What becomes of a row's update; None, which costs nothing, takes it as it is.
        counts: Impressions of each row (R,) by table, for ``row_update``.
        precision: Of rows that travel between ranks.
        can_refresh: Whether `refresh` may be called; costs four bytes a row.

    Attributes:
        exchange: Between the ranks; counts what it sends.
    """

    def __init__(
        self,
        config: TablesConfig,
        *,
        learning_rate: float,
        device: torch.device,
        seed: int | None,
        row_update: RowUpdate | None = None,
        counts: Mapping[str, Tensor] | None = None,
        precision: Precision = "fp32",
        can_refresh: bool = False,
    ) -> None:
        self.exchange = Exchange(dim=config.dim, precision=precision)
        self._layout = Layout(num_rows_of(config), num_ranks=self.exchange.num_ranks)
        num_slots = self._layout.num_slots
        self._fused = fused_rows(num_slots, config.dim, learning_rate=learning_rate, device=device)
        self._rows_SD, self._sums_S = self._fused.rows_SD, self._fused.sums_S
        if seed is not None:
            self._first_rows(config, seed)
        self._touched = (
            _Touched(row_update, self._rows_SD, self._of_rank(counts or {})) if row_update is not None else None
        )
        self._shared = SharedIds()
        self._num_updates = 0
        self._updated_at_S = torch.zeros(num_slots, dtype=torch.int32, device=device) if can_refresh else None

    def send(self, ids: Ids) -> Sent:
        """Takes each distinct id to the rank that holds its row; see `Lookup.send`."""
        sizes = {site: len(rows_N) for site, rows_N in ids.items()}
        addresses_N = torch.cat([self._layout.addresses(TABLE_OF_SITE[site], rows_N) for site, rows_N in ids.items()])
        num_ranks, num_slots = self.exchange.num_ranks, self._layout.num_slots
        if num_ranks == 1:
            self._shared.add(addresses_N)
            whole = [len(addresses_N)]
            return Sent(sizes=sizes, slots_T=addresses_N, places_N=None, sent=whole, received=whole)
        addresses_U, places_N = torch.unique(addresses_N, return_inverse=True)
        edges_W = torch.arange(1, num_ranks + 1, device=addresses_U.device) * num_slots
        ends_W = torch.searchsorted(addresses_U, edges_W)
        counts_W = torch.diff(ends_W, prepend=ends_W.new_zeros(1))
        sent, received = counts_W.tolist(), self.exchange.counts(counts_W)
        slots_U = (addresses_U % num_slots).to(torch.int32)
        slots_T = self.exchange.items(slots_U, send=sent, receive=received).long()
        self._shared.add(slots_T)
        return Sent(sizes=sizes, slots_T=slots_T, places_N=places_N, sent=sent, received=received)

    def read(self, sent: Sent, *, adapting: bool) -> Rows:
        """Gathers the rows and takes them to the ranks that asked; see `Lookup.read`."""
        with torch.set_grad_enabled(adapting):
            rows_TD = self._gather(sent.slots_T, adapting=adapting)
            if self.exchange.num_ranks == 1:
                rows_UD = rows_TD
            else:
                rows_UD = self.exchange.rows(rows_TD, send=sent.received, receive=sent.sent)
            sent.num_updates, sent.rows_UD = self._num_updates, rows_UD.detach()
            return sent.by_site(rows_UD)

    def refresh(self, sent: Sent) -> Rows:
        """Reads again the rows that updates have touched since they were read; collective.

        Returns:
            All rows of the call sites, equal to those that `read` would give now, outside autograd.
        """
        assert self._updated_at_S is not None and sent.rows_UD is not None
        is_stale_T = self._updated_at_S[sent.slots_T] > sent.num_updates
        stale_T = is_stale_T.nonzero().squeeze(1)
        rows_UD = sent.rows_UD.clone()
        if self.exchange.num_ranks == 1:
            rows_UD[stale_T] = self._rows_SD[sent.slots_T[stale_T]]
        else:
            # A rank learns which of its rows are stale by their places among those it got from each other rank.
            begins_W = torch.tensor([0, *sent.received[:-1]], device=stale_T.device).cumsum(0)
            rank_T = torch.bucketize(stale_T, begins_W[1:], right=True)
            counts_W = torch.bincount(rank_T, minlength=len(sent.received))
            send, receive = counts_W.tolist(), self.exchange.counts(counts_W)
            places = self.exchange.items((stale_T - begins_W[rank_T]).to(torch.int32), send=send, receive=receive)
            fresh = self.exchange.rows(self._rows_SD[sent.slots_T[stale_T]], send=send, receive=receive)
            asked_begins_W = torch.tensor([0, *sent.sent[:-1]], device=stale_T.device).cumsum(0)
            from_rank = torch.repeat_interleave(torch.tensor(receive, device=stale_T.device))
            rows_UD[places.long() + asked_begins_W[from_rank]] = fresh
        sent.num_updates, sent.rows_UD = self._num_updates, rows_UD
        return sent.by_site(rows_UD)

    def settle(self) -> None:
        """Finishes an update; see `Lookup.settle`."""
        if self._touched is not None:
            self._touched.settle()

    def take_traffic(self) -> Traffic:
        """What was sent since the last call."""
        num_collectives, num_bytes = self.exchange.take_counts()
        return Traffic(num_collectives=num_collectives, num_bytes=num_bytes, shared_ids=self._shared.take())

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the step size of the coming updates."""
        self._fused.set_learning_rate(learning_rate)

    def rows(self) -> dict[str, Tensor]:
        """The whole tables (R, D) float32 on CPU, by name; collective, empty on ranks other than 0."""
        return self._gathered(self._rows_SD)

    def state(self) -> dict[str, Tensor]:
        """The whole Adagrad sums (R,) float32 on CPU, by table; collective, empty on ranks other than 0."""
        return self._gathered(self._sums_S)

    def load_rows(self, rows: Mapping[str, Tensor]) -> None:
        """Copies this rank's part of whole tables (R, D)."""
        self._load(self._rows_SD, rows)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies this rank's part of whole Adagrad sums (R,)."""
        self._load(self._sums_S, state)

    def reset_state(self) -> None:
        """Sets the Adagrad sums to zero."""
        self._sums_S.zero_()

    def local_state(self) -> dict[str, Tensor]:
        """Copies of this rank's rows and optimizer state; `load_local_state` sets them again."""
        return {name: values.clone() for name, values in self._local().items()}

    def load_local_state(self, state: Mapping[str, Tensor]) -> None:
        """Sets this rank's rows and optimizer state to what `local_state` returned."""
        for name, values in self._local().items():
            values.copy_(state[name])

    def fingerprint(self) -> str:
        """SHA-256 of the bits of this rank's rows and optimizer state."""
        digest = hashlib.sha256()
        for values in self._local().values():
            digest.update(values.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def _gather(self, slots_T: Tensor, *, adapting: bool) -> Tensor:
        if not adapting:
            frozen_TD: Tensor = self._rows_SD.index_select(0, slots_T)
            return frozen_TD
        rows_TD = self._fused.look_up(slots_T)  # of none, too: gradients are exchanged all the same
        if self._touched is None and self._updated_at_S is None:
            return rows_TD
        watched_TD: Tensor = _BeforeUpdate.apply(rows_TD, self, slots_T)  # type: ignore[no-untyped-call]
        return watched_TD

    def _will_update(self, slots_T: Tensor) -> None:
        self._num_updates += 1
        if self._updated_at_S is not None:
            self._updated_at_S[slots_T] = self._num_updates
        if self._touched is not None:
            self._touched.remember(slots_T)

    def _local(self) -> dict[str, Tensor]:
        watched = self._touched.state if self._touched is not None else {}
        return {"rows": self._rows_SD, "state": self._sums_S, **watched}

    def _first_rows(self, config: TablesConfig, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        rows = {
            table: torch.randn(num_rows, config.dim, generator=generator) / config.dim**0.5
            for table, num_rows in num_rows_of(config).items()
        }
        self.load_rows(rows)

    def _load(self, values: Tensor, whole: Mapping[str, Tensor]) -> None:
        for table, of_table in whole.items():
            mine = of_table[self._layout.rows_of(table, self.exchange.rank)]
            values[self._layout.slots_of(table)][: len(mine)].copy_(mine)

    def _of_rank(self, counts: Mapping[str, Tensor]) -> Tensor:
        counts_S = torch.zeros(self._layout.num_slots, dtype=torch.int64, device=self._rows_SD.device)
        self._load(counts_S, counts)
        return counts_S

    def _gathered(self, values: Tensor) -> dict[str, Tensor]:
        num_ranks, is_first = self.exchange.num_ranks, self.exchange.rank == 0
        if num_ranks == 1:
            parts: list[Tensor] | None = [values]
        else:
            parts = [torch.empty_like(values) for _ in range(num_ranks)] if is_first else None
            dist.gather(values, parts)
        if parts is None:
            return {}
        whole = {}
        for table in SITES_OF_TABLE:
            of_ranks = []
            for rank, part in enumerate(parts):
                rows = self._layout.rows_of(table, rank)
                of_ranks.append(part[self._layout.slots_of(table)][: rows.stop - rows.start].cpu())
            whole[table] = torch.cat(of_ranks)
        return whole


class SharedIds:
    """Counts the rows that consecutive batches share, now and then: sorting ids takes time."""

    def __init__(self) -> None:
        self._number = self._num_ids = 0
        self._num_shared: Tensor | int = 0
        self._last_T: Tensor | None = None

    def add(self, slots_T: Tensor) -> None:
        """Takes note of a batch's rows (T,)."""
        self._number += 1
        if self._last_T is not None:
            self._num_shared = self._num_shared + torch.isin(slots_T, self._last_T).sum()
            self._num_ids += len(slots_T)
        self._last_T = slots_T if self._number % _SHARED_EVERY == 1 else None

    def take(self) -> float:
        """The share since the last call; the count begins again."""
        share = float(self._num_shared) / self._num_ids if self._num_ids else 0.0
        self._number = self._num_ids = 0
        self._num_shared = 0
        self._last_T = None
        return share


class _BeforeUpdate(torch.autograd.Function):
    """Hands rows and gradients through; on the way back it tells the tables which rows an update is about to touch."""

    @staticmethod
    def forward(ctx: Any, rows_TD: Tensor, tables: ShardedTables, slots_T: Tensor) -> Tensor:
        ctx.tables, ctx.slots_T = tables, slots_T
        return rows_TD.view_as(rows_TD)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.tables._will_update(ctx.slots_T)
        return gradients[0], None, None


class _Touched:
    """Lets a `RowUpdate` have its say on the rows that a step touches."""

    def __init__(self, row_update: RowUpdate, rows_SD: Tensor, counts_S: Tensor) -> None:
        self._row_update, self._rows_SD, self._counts_S = row_update, rows_SD, counts_S
        self._last_step_S = torch.zeros(len(rows_SD), dtype=torch.int32, device=rows_SD.device)
        self._step = torch.zeros((), dtype=torch.int32)
        self._before: tuple[Tensor, Tensor] | None = None

    @property
    def state(self) -> dict[str, Tensor]:
        """What coming updates depend on beside rows and sums."""
        return {"touched.step": self._step, "touched.last_step": self._last_step_S}

    def remember(self, slots_T: Tensor) -> None:
        """Keeps the rows that an update will touch, as they are before it."""
        self._step += 1
        touched_T = slots_T.unique()  # type: ignore[no-untyped-call]
        self._before = touched_T, self._rows_SD[touched_T]

    def settle(self) -> None:
        """Replaces the update of the remembered rows."""
        if self._before is None:
            return
        touched_T, old_TD = self._before
        interval_T = int(self._step) - self._last_step_S[touched_T]
        new_TD = self._rows_SD[touched_T]
        kept_TD = self._row_update.apply(old_TD, new_TD, self._counts_S[touched_T], interval_T)
        self._rows_SD[touched_T] = kept_TD
        self._last_step_S[touched_T] = int(self._step)
        self._before = None
