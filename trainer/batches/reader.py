"""Window -> batches: whole slates, shuffled by seed and epoch, split over ranks.

A step holds the same slates whatever the number of ranks, so another world size continues with the same data, and the
position of a reader is just (epoch, step).
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trainer.batches.batch import Batch
from trainer.batches.columns import Columns, Floats, Ints


class SlateReader:
    """Streams the slates of some rows as batches.

    Args:
        columns: The rows; those of a slate lie side by side.
        batch_rows: Rows a step, all ranks together; a slate belongs to the step in which it begins.
        seed: Seed of the shuffles.
        rank: This process.
        num_ranks: All of them; each takes every ``num_ranks``-th slate of a step.
        slates: Numbers of the slates to read, counted from 0 in the order of the rows; None is all.
    """

    def __init__(
        self,
        columns: Columns,
        *,
        batch_rows: int,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
        slates: Ints | None = None,
    ) -> None:
        self._columns = columns
        self._batch_rows = batch_rows
        self._seed = seed
        self._rank, self._num_ranks = rank, num_ranks
        self._starts = slate_starts(columns.request_id)
        self._slates = np.arange(len(self._starts) - 1) if slates is None else slates
        self._log_q = _log_share(columns.pin_id)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of one pass, in an order of its own for each epoch (0, 1, ...)."""
        return self._stream(self._order(epoch))

    def in_order(self) -> Iterator[Batch]:
        """The batches in the order of the rows, for scoring."""
        return self._stream(self._slates)

    def num_steps(self, epoch: int) -> int:
        """Batches that `epoch` yields."""
        return len(self._step_edges(self._order(epoch))) - 1

    def rows_of_rank(self) -> Ints:
        """Positions of the rows that `in_order` yields on this rank."""
        steps = pairwise(self._step_edges(self._slates))
        mine = [self._slates[begin:end][self._rank :: self._num_ranks] for begin, end in steps]
        return _rows_of(self._starts, np.concatenate(mine))

    def _order(self, epoch: int) -> Ints:
        return self._slates[np.random.default_rng([self._seed, epoch]).permutation(len(self._slates))]

    def _stream(self, order: Ints) -> Iterator[Batch]:
        sizes = np.diff(self._starts)
        for begin, end in pairwise(self._step_edges(order)):
            mine = order[begin:end][self._rank :: self._num_ranks]
            yield self._columns.gather(
                _rows_of(self._starts, mine),
                slates=np.repeat(np.arange(len(mine)), sizes[mine]),
                log_q=self._log_q,
                num_step_rows=int(sizes[order[begin:end]].sum()),
            )

    def _step_edges(self, order: Ints) -> Ints:
        """Where steps begin in an order of slates, and its end."""
        sizes = np.diff(self._starts)[order]
        step = (np.cumsum(sizes) - sizes) // self._batch_rows
        return np.append(np.flatnonzero(np.diff(step, prepend=-1)), len(order))


def slate_starts(request_id: Ints) -> Ints:
    """Where the runs of equal ``request_id`` begin, and the end."""
    return np.append(np.flatnonzero(np.diff(request_id, prepend=request_id[:1] - 1)), len(request_id))


def _rows_of(starts: Ints, slates: Ints) -> Ints:
    sizes = starts[slates + 1] - starts[slates]
    return np.repeat(starts[slates] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())


def _log_share(pin_id: NDArray[np.int64]) -> Floats:
    _, inverse, counts = np.unique(pin_id, return_inverse=True, return_counts=True)
    return np.log(counts[inverse] / len(pin_id)).astype(np.float32)
