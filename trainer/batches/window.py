"""A window that is larger than memory: its row groups are chunks, decoded when their turn comes.

A prepared day lies in the order of a seeded hash of its slates, so any row group is a random sample of its day, and row
groups drawn from all days make a buffer in which slates mix well.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from trainer.batches.columns import Columns, ColumnsBuilder, columns_of, decoded, stored_as
from trainer.batches.files import read_row_groups, row_groups_of
from trainer.batches.slates import Ints, Sizes, slate_starts
from trainer.batches.source import Bools, Loaded, PinCounts, Source, go_on
from trainer.errors import InputError
from trainer.recipe import Recipe
from trainer.windows.manifest import Partition
from trainer.windows.prepared import REMEDY

# Pins that were counted and not yet added up: some tens of MB.
_MAX_COUNTED = 4_000_000
_log = logging.getLogger(__name__)


def open_window(partitions: Sequence[Partition], recipe: Recipe) -> Source:
    """The rows of prepared days, oldest first: in memory where they fit ``training.shuffle_rows``.

    Raises:
        InputError: A file cannot be read, or the encoder wants media, and a day has none or one that cannot be
            decoded.
        StorageError: Storage failed for too long.
    """
    if sum(partition.num_rows for partition in partitions) > recipe.training.shuffle_rows:
        return Window(partitions, recipe)
    began_s = time.monotonic()
    columns = Columns.read(partitions, recipe)
    _log.info("window: %d rows, in memory; read in %.1f s", columns.num_rows, time.monotonic() - began_s)
    return columns


class Window:
    """Prepared days on disk; a `trainer.batches.source.Source` with a chunk for each row group.

    One pass over ``request_id`` and ``pin_id`` makes the index that is kept: four bytes a slate, sixteen a distinct
    pin.

    Args:
        partitions: The days, oldest first.
        recipe: Says how rows are decoded, and how many may be in memory at once.

    Raises:
        InputError: A file cannot be read.
        StorageError: Storage failed for too long.
    """

    def __init__(self, partitions: Sequence[Partition], recipe: Recipe) -> None:
        began_s = time.monotonic()
        self._recipe = recipe
        self._groups = row_groups_of(partitions)
        self.num_rows = sum(group.num_rows for group in self._groups)
        self._sizes: list[Sizes] = []
        counter = _PinCounter()
        last_slate = None
        for group, columns in zip(self._groups, self._read(["request_id", "pin_id"], "index"), strict=True):
            request_id = columns["request_id"]
            if group.number and request_id[0] == last_slate:
                raise InputError(f"{group.uri}: row group {group.number} begins within a slate; {REMEDY}")
            last_slate = request_id[-1]
            self._sizes.append(np.diff(slate_starts(request_id)).astype(np.int32))
            counter.add(columns["pin_id"])
        self._pins = counter.finish()
        _log.info(
            "window: %d rows, %d at a time; indexed in %.1f s",
            self.num_rows,
            self.buffer_rows,
            time.monotonic() - began_s,
        )

    @property
    def buffer_rows(self) -> int:
        """See `trainer.batches.source.Source`."""
        return self._recipe.training.shuffle_rows

    @property
    def slate_sizes(self) -> Sequence[Sizes]:
        """See `trainer.batches.source.Source`."""
        return self._sizes

    def count_pins(self) -> PinCounts:
        """See `trainer.batches.source.Source`."""
        return self._pins

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """See `trainer.batches.source.Source`."""
        for columns in self._read([name], name):
            yield columns[name]

    def load(self, chunks: Ints, wanted: Bools, check: Callable[[], None] = go_on) -> Loaded:
        """See `trainer.batches.source.Source`; what is not wanted is left out."""
        sizes = np.concatenate([self._sizes[chunk] for chunk in chunks]).astype(np.int64)
        kept_sizes = np.where(wanted, sizes, 0)
        groups = [self._groups[chunk] for chunk in chunks]
        ends = np.cumsum([group.num_rows for group in groups])
        masks = np.split(np.repeat(wanted, sizes), ends[:-1])
        chosen = [(group, mask) for group, mask in zip(groups, masks, strict=True) if mask.any()]
        builder = ColumnsBuilder(
            self._recipe,
            num_rows=int(kept_sizes.sum()),
            num_history=sum(group.num_history for group, _ in chosen),
        )
        tables = read_row_groups([group for group, _ in chosen], columns_of(self._recipe))
        for (group, mask), table in zip(chosen, tables, strict=True):
            check()
            builder.add(table, group.uri, None if mask.all() else np.flatnonzero(mask))
        return Loaded(columns=builder.finish(), starts=np.cumsum(kept_sizes) - kept_sizes)

    def _read(self, names: Sequence[str], title: str) -> Iterator[dict[str, NDArray[Any]]]:
        """Attributes of `Columns` that have an entry a row, a row group at a time."""
        stored = [column for name in names for column in stored_as(name, self._recipe)]
        tables = read_row_groups(self._groups, stored)
        # Shown where someone looks; ranks' output goes to a file.
        for table in tqdm(tables, f"window: {title}", len(self._groups), unit="group", leave=False, disable=None):
            yield {name: decoded(table, name, self._recipe) for name in names}


class _PinCounter:
    """Counts pins part by part, in memory for the distinct ones and some parts."""

    def __init__(self) -> None:
        self._counts: list[PinCounts] = []

    def add(self, pin_id: Ints) -> None:
        self._counts.append(PinCounts.of(pin_id))
        total, num_summed = sum(len(part.pins) for part in self._counts), len(self._counts[0].pins)
        if total > max(_MAX_COUNTED, 2 * num_summed):
            self._counts = [self.finish()]

    def finish(self) -> PinCounts:
        return PinCounts.sum_of(self._counts)
