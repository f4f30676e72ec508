"""A window that is larger than memory: its row groups are chunks, decoded when their turn comes.

A prepared day lies in the order of a seeded hash of its slates, so any row group is a random sample of its day, and row
groups drawn from all days make a buffer in which slates mix well.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from trainer.batches.columns import Columns, ColumnsBuilder, columns_of, decoded, stored_as
from trainer.batches.files import Piece, RowGroup, read_pieces, row_groups_of
from trainer.batches.slates import Ints, Sizes
from trainer.batches.source import Bools, Loaded, PinCounts, Source, go_on
from trainer.recipe import Recipe
from trainer.windows.manifest import Partition

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


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """Slates that begin in one row group.

    Attributes:
        pieces: Their rows: of that row group, and where the last slate goes on in others, of those.
        sizes: Rows of each slate.
    """

    pieces: tuple[Piece, ...]
    sizes: Sizes


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
        groups = [group for group in row_groups_of(partitions) if group.num_rows]
        self._groups = [_whole(group) for group in groups]
        self.num_rows = sum(group.num_rows for group in groups)
        index = _Index()
        for piece, columns in zip(self._groups, self._read(["request_id", "pin_id"], "index"), strict=True):
            index.add(piece.group, columns["request_id"], columns["pin_id"])
        self._chunks, self._pins = index.finish()
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
        return [chunk.sizes for chunk in self._chunks]

    def count_pins(self) -> PinCounts:
        """See `trainer.batches.source.Source`."""
        return self._pins

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """See `trainer.batches.source.Source`."""
        for columns in self._read([name], name):
            yield columns[name]

    def load(self, chunks: Ints, wanted: Bools, check: Callable[[], None] = go_on) -> Loaded:
        """See `trainer.batches.source.Source`; what is not wanted is left out."""
        loaded = [self._chunks[chunk] for chunk in chunks]
        sizes = np.concatenate([chunk.sizes for chunk in loaded]).astype(np.int64)
        kept_sizes = np.where(wanted, sizes, 0)
        is_kept_row = np.repeat(wanted, sizes)
        pieces, masks, begin = [], [], 0
        for piece in (piece for chunk in loaded for piece in chunk.pieces):
            mask = is_kept_row[begin : begin + piece.num_rows]
            begin += piece.num_rows
            if mask.any():
                pieces.append(piece)
                masks.append(mask)
        builder = ColumnsBuilder(
            self._recipe,
            num_rows=int(kept_sizes.sum()),
            num_history=sum(piece.group.num_history for piece in pieces),
        )
        tables = read_pieces(pieces, columns_of(self._recipe))
        for piece, mask, table in zip(pieces, masks, tables, strict=True):
            check()
            builder.add(table, piece.group.uri, None if mask.all() else np.flatnonzero(mask))
        return Loaded(columns=builder.finish(), starts=np.cumsum(kept_sizes) - kept_sizes)

    def _read(self, names: Sequence[str], title: str) -> Iterator[dict[str, NDArray[Any]]]:
        """Attributes of `Columns` that have an entry a row, a row group at a time."""
        stored = [column for name in names for column in stored_as(name, self._recipe)]
        tables = read_pieces(self._groups, stored)
        # Shown where someone looks; ranks' output goes to a file.
        for table in tqdm(tables, f"window: {title}", len(self._groups), unit="group", leave=False, disable=None):
            yield {name: decoded(table, name, self._recipe) for name in names}


def _whole(group: RowGroup) -> Piece:
    return Piece(group=group, skip=0, num_rows=group.num_rows)


@dataclass
class _Open:
    """A chunk whose last slate may go on in the next row group."""

    pieces: list[Piece]
    sizes: Ints
    last_request: int


@dataclass
class _Index:
    """Cuts row groups, given in order, into chunks at the edges of slates; counts pins."""

    chunks: list[_Chunk] = field(default_factory=list)
    counts: list[PinCounts] = field(default_factory=list)
    open: _Open | None = None

    def add(self, group: RowGroup, request_id: Ints, pin_id: Ints) -> None:
        """Adds the rows of a row group, which are not none."""
        self._count(pin_id)
        before = request_id[0] - 1 if self.open is None else self.open.last_request
        starts = np.flatnonzero(np.diff(request_id, prepend=before))
        head = int(starts[0]) if len(starts) else len(request_id)
        if head and self.open is not None:
            self.open.pieces.append(Piece(group=group, skip=0, num_rows=head))
            self.open.sizes[-1] += head
        if len(starts):
            self._close()
            piece = Piece(group=group, skip=head, num_rows=group.num_rows - head)
            sizes = np.diff(np.append(starts, len(request_id)))
            self.open = _Open(pieces=[piece], sizes=sizes, last_request=int(request_id[-1]))

    def finish(self) -> tuple[list[_Chunk], PinCounts]:
        """Chunks, and counts of all pins."""
        self._close()
        return self.chunks, PinCounts.sum_of(self.counts)

    def _close(self) -> None:
        if self.open is not None:
            self.chunks.append(_Chunk(pieces=tuple(self.open.pieces), sizes=self.open.sizes.astype(np.int32)))
            self.open = None

    def _count(self, pin_id: Ints) -> None:
        self.counts.append(PinCounts.of(pin_id))
        total, num_summed = sum(len(part.pins) for part in self.counts), len(self.counts[0].pins)
        if total > max(_MAX_COUNTED, 2 * num_summed):
            self.counts = [PinCounts.sum_of(self.counts)]
