"""Window -> batches: whole slates, shuffled by seed and epoch, split over ranks.

A pass reads chunks (`trainer.batches.source`) in an order drawn for it, as many at a time as the buffer holds, and the
slates of a buffer in an order drawn for that. Rows in memory are one buffer, kept over passes. A step holds the same
slates whatever the number of ranks, so another world size continues with the same data, and the position of a reader
is just (epoch, step).

Two threads work ahead: one fills the next buffer, one gathers the next batches. So a rank holds its slates of one
buffer, those of the next and a few batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from trainer.batches.batch import Batch, cut, joined
from trainer.batches.columns import Columns
from trainer.batches.prefetch import Check, Prefetch
from trainer.batches.slates import Ints, Sizes, places
from trainer.batches.source import Bools, Floats, PinCounts, Source, go_on

_BATCHES_AHEAD = 4
# Rows of all ranks that are gathered with one set of calls: small batches are mostly the cost of calls.
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """What a pass reads from one buffer.

    Attributes:
        chunks: Which are in it, ascending.
        sizes: Rows of each of their slates.
        order: Numbers of the slates to read, within the buffer, in the order in which they are read.
        is_mine: Which of them this rank takes.
        edges: Where in the order steps begin, and its end.
        first_step: The step that the first edge is of, counted from 0 over the pass.
        is_open: Whether the next buffer goes on with the last step.
    """

    chunks: Ints
    sizes: Ints
    order: Ints
    is_mine: Bools
    edges: list[int]
    first_step: int
    is_open: bool

    @property
    def last_step(self) -> int:
        """The step that the last slate is of."""
        return self.first_step + len(self.edges) - 2

    def slates_of(self, step: int) -> tuple[Ints, Ints]:
        """The slates of a step that are in the buffer, and those of them that this rank takes."""
        begin, end = self.edges[step - self.first_step], self.edges[step - self.first_step + 1]
        slates = self.order[begin:end]
        return slates, slates[self.is_mine[begin:end]]

    @property
    def wanted(self) -> Bools:
        """Which slates of the chunks this rank takes."""
        wanted = np.zeros(len(self.sizes), np.bool_)
        wanted[self.order[self.is_mine]] = True
        return wanted


@dataclass(frozen=True, kw_only=True)
class _Buffer:
    """Slates in memory, and the log of each row's pin's share of all rows."""

    columns: Columns
    starts: Ints
    log_q: Floats

    def gather(self, slates: Ints, sizes: Ints, num_step_rows: int) -> Batch:
        return self.columns.gather(
            places(self.starts[slates], sizes[slates]),
            slates=np.repeat(np.arange(len(slates)), sizes[slates]),
            log_q=self.log_q,
            num_step_rows=num_step_rows,
        )

    def gather_steps(self, turn: _Turn, steps: Sequence[int]) -> list[Batch]:
        """The batches of some steps that follow each other, gathered together."""
        slates = [turn.slates_of(step) for step in steps]
        num_step_rows = [int(turn.sizes[of_all].sum()) for of_all, _ in slates]
        if self.columns.media is not None:
            return [self.gather(mine, turn.sizes, num) for (_, mine), num in zip(slates, num_step_rows, strict=True)]
        together = self.gather(np.concatenate([mine for _, mine in slates]), turn.sizes, sum(num_step_rows))
        return cut(together, [len(mine) for _, mine in slates], num_step_rows)


class SlateReader:
    """Streams slates as batches.

    Args:
        source: The rows.
        batch_rows: Rows a step, all ranks together; a slate belongs to the step in which it begins.
        seed: Seed of the shuffles.
        rank: This process.
        num_ranks: All of them; each takes every ``num_ranks``-th slate of a step.
        slates: Numbers of the slates to read, ascending, counted from 0 in the order of the rows; None is all.
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_rows: int,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
        slates: Ints | None = None,
    ) -> None:
        self._source = source
        self._batch_rows = batch_rows
        self._seed = seed
        self._rank, self._num_ranks = rank, num_ranks
        self._sizes = source.slate_sizes
        self._is_read = _by_chunk(slates, self._sizes)
        self._pins = source.count_pins()
        self._held: _Buffer | None = None
        self._num_steps: dict[int, int] = {}
        self._waited_s = 0.0

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """The batches of one pass, in an order of its own for each epoch (0, 1, ...).

        Args:
            epoch: Which pass.
            first_step: Steps to leave out, as when a pass is gone on with; buffers that only they read are not filled.

        Raises:
            InputError: A file of the window cannot be read any more.
            StorageError: Storage failed for too long.
        """
        return self._stream(self._shuffled(epoch), first_step)

    def in_order(self) -> Iterator[Batch]:
        """The batches in the order of the rows, for scoring; see `epoch` for what it raises."""
        return self._stream(self._in_order(), 0)

    def num_steps(self, epoch: int) -> int:
        """Batches that `epoch` yields."""
        if epoch not in self._num_steps:
            self._num_steps[epoch] = max((turn.last_step + 1 for turn in self._shuffled(epoch)), default=0)
        return self._num_steps[epoch]

    def rows_of_rank(self) -> Ints:
        """Positions of the rows that `in_order` yields on this rank."""
        num_before = np.cumsum([0, *(sizes.sum(dtype=np.int64) for sizes in self._sizes)])
        found = []
        for turn in self._in_order():
            starts = num_before[turn.chunks[0]] + np.cumsum(turn.sizes) - turn.sizes
            mine = turn.order[turn.is_mine]
            found.append(places(starts[mine], turn.sizes[mine]))
        return np.concatenate(found)

    def take_wait_s(self) -> float:
        """Seconds that whoever reads the batches waited for them, in the streams that ended since the last call."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def _shuffled(self, epoch: int) -> Iterator[_Turn]:
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._sizes))
        groups = self._grouped(order)
        # A single buffer's slates are drawn as they always were; SeedSequence takes a last 0 for nothing.
        seeds = [[self._seed, epoch, *([1 + number] if len(groups) > 1 else [])] for number in range(len(groups))]
        return self._turns(groups, seeds)

    def _in_order(self) -> Iterator[_Turn]:
        groups = self._grouped(np.arange(len(self._sizes)))
        return self._turns(groups, [None] * len(groups))

    def _grouped(self, chunks: Ints) -> list[Ints]:
        """Chunks in an order, cut into buffers of about the same number of rows."""
        rows = np.array([self._sizes[chunk].sum(dtype=np.int64) for chunk in chunks])
        total, limit = int(rows.sum()), self._source.buffer_rows
        if total <= limit:
            return [np.sort(chunks)]
        room = max(1, limit - int(rows.max()))  # what a buffer's last chunk adds fits in, too
        target = ceil(total / ceil(total / room))
        cuts = np.flatnonzero(np.diff((np.cumsum(rows) - rows) // target)) + 1
        return [np.sort(group) for group in np.split(chunks, cuts)]

    def _turns(self, groups: Sequence[Ints], seeds: Sequence[list[int] | None]) -> Iterator[_Turn]:
        num_rows, step, last, num_slates = 0, -1, -1, 0  # so far: rows, steps less 1, the last one's place and slates
        for chunks, seed in zip(groups, seeds, strict=True):
            sizes = np.concatenate([self._sizes[chunk] for chunk in chunks]).astype(np.int64)
            order = np.flatnonzero(np.concatenate([self._is_read[chunk] for chunk in chunks]))
            if not len(order):
                continue
            if seed is not None:
                order = order[np.random.default_rng(seed).permutation(len(order))]
            ends = num_rows + np.cumsum(sizes[order])
            place = (ends - sizes[order]) // self._batch_rows
            edges = np.flatnonzero(np.diff(place, prepend=-1))
            goes_on = place[0] == last
            within = np.arange(len(order)) - np.repeat(edges, np.diff(np.append(edges, len(order))))
            if goes_on:
                within[: edges[1] if len(edges) > 1 else None] += num_slates
            num_rows = int(ends[-1])
            first_step = step if goes_on else step + 1
            step, last, num_slates = first_step + len(edges) - 1, int(place[-1]), int(within[-1]) + 1
            yield _Turn(
                chunks=chunks,
                sizes=sizes,
                order=order,
                is_mine=within % self._num_ranks == self._rank,
                edges=[*edges.tolist(), len(order)],
                first_step=first_step,
                is_open=num_rows // self._batch_rows == last,
            )

    def _stream(self, turns: Iterator[_Turn], first_step: int) -> Iterator[Batch]:
        buffers = Prefetch(lambda check: self._buffers(turns, first_step, check), depth=1, name="buffers")
        batches = Prefetch(lambda _: self._batches(iter(buffers), first_step), depth=_BATCHES_AHEAD, name="batches")
        try:
            yield from batches
        finally:
            for thread in (batches, buffers):
                thread.stop()
            for thread in (batches, buffers):
                thread.join()
            self._waited_s += batches.waited_s

    def _buffers(self, turns: Iterator[_Turn], first_step: int, check: Check) -> Iterator[tuple[_Turn, _Buffer]]:
        for turn in turns:
            if turn.last_step >= first_step:
                yield turn, self._load(turn, check)

    def _load(self, turn: _Turn, check: Check) -> _Buffer:
        if self._held is not None:
            return self._held
        is_only = len(turn.chunks) == len(self._sizes)
        wanted = np.ones(len(turn.sizes), np.bool_) if is_only else turn.wanted
        buffer = _buffer(self._source, turn.chunks, wanted, self._pins, check)
        if is_only:
            self._held = buffer
        return buffer

    def _batches(self, buffers: Iterator[tuple[_Turn, _Buffer]], first_step: int) -> Iterator[Batch]:
        num_at_once = max(1, _ROWS_AT_ONCE // self._batch_rows)
        parts: list[Batch] = []
        for turn, buffer in buffers:
            steps = range(max(first_step, turn.first_step), turn.last_step + 1)
            for begin in range(0, len(steps), num_at_once):
                at_once = steps[begin : begin + num_at_once]
                for step, part in zip(at_once, buffer.gather_steps(turn, at_once), strict=True):
                    parts.append(part)
                    if step < turn.last_step or not turn.is_open:
                        yield joined(parts)
                        parts = []
        if parts:
            yield joined(parts)


def batches_of(source: Source, *groups: Ints) -> list[Batch]:
    """Some groups of slates, ascending, as one batch each; a window on disk is read once for all.

    Raises:
        InputError: A file of the window cannot be read any more.
        StorageError: Storage failed for too long.
    """
    of_chunks = source.slate_sizes
    sizes = np.concatenate(of_chunks).astype(np.int64)
    wanted = np.zeros(len(sizes), np.bool_)
    wanted[np.concatenate(groups)] = True
    buffer = _buffer(source, np.arange(len(of_chunks)), wanted, source.count_pins(), go_on)
    return [buffer.gather(slates, sizes, int(sizes[slates].sum())) for slates in groups]


def _buffer(source: Source, chunks: Ints, wanted: Bools, pins: PinCounts, check: Check) -> _Buffer:
    loaded = source.load(chunks, wanted, check)
    return _Buffer(columns=loaded.columns, starts=loaded.starts, log_q=pins.log_share(loaded.columns.pin_id))


def _by_chunk(slates: Ints | None, sizes: Sequence[Sizes]) -> list[Bools]:
    """Which slates of each chunk are to be read."""
    ends = np.cumsum([len(of_chunk) for of_chunk in sizes])
    is_read = np.full(ends[-1], slates is None)
    if slates is not None:
        is_read[slates] = True
    return np.split(is_read, ends[:-1])
