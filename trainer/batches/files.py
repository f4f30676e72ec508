"""Prepared days as row groups, read one after another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from trainer.batches.media import MEDIA_COLUMNS, require_media
from trainer.errors import InputError
from trainer.windows.manifest import Partition
from trainer.windows.prepared import REMEDY, open_prepared


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """A part of a Parquet file that is read as one.

    Attributes:
        uri: The file.
        number: Which of its row groups.
        num_rows: Rows.
        num_history: Pins of all histories, or a few more: empty histories count as one.
    """

    uri: str
    number: int
    num_rows: int
    num_history: int


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Rows of a row group that lie side by side.

    Attributes:
        group: The row group.
        skip: Rows before them.
        num_rows: Rows.
    """

    group: RowGroup
    skip: int
    num_rows: int


def row_groups_of(partitions: Sequence[Partition]) -> list[RowGroup]:
    """The row groups of prepared days in the order of their rows.

    Raises:
        InputError: A file cannot be read, or a day has not as many rows as it was published with.
    """
    found = []
    for partition in partitions:
        groups = [group for uri in partition.files for group in _row_groups(uri)]
        num_rows = sum(group.num_rows for group in groups)
        if num_rows != partition.num_rows:
            said = f"has {num_rows:,} rows instead of {partition.num_rows:,}"
            raise InputError(f"{', '.join(partition.paths)}: {said}; {REMEDY}")
        found += groups
    return found


def _row_groups(uri: str) -> list[RowGroup]:
    with open_prepared(uri) as file:
        metadata = file.metadata
        paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
        history = next(index for index, path in enumerate(paths) if path.split(".")[0] == "history")
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        return [
            RowGroup(uri=uri, number=number, num_rows=group.num_rows, num_history=group.column(history).num_values)
            for number, group in enumerate(groups)
        ]


def read_pieces(pieces: Sequence[Piece], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of some pieces, one table each, with those of the columns that a file has.

    Raises:
        InputError: A file cannot be read, or is not what it was, or lacks images or texts among the columns.
        StorageError: Storage failed for too long.
    """
    for uri, of_file in groupby(pieces, key=lambda piece: piece.group.uri):
        with open_prepared(uri) as file:
            there = file.schema_arrow.names
            if MEDIA_COLUMNS[0] in columns:
                require_media(there, uri)
            names = [name for name in columns if name in there]
            for piece in of_file:
                yield _read(file, piece, names)


def _read(file: pq.ParquetFile, piece: Piece, names: list[str]) -> pa.Table:
    group = piece.group
    if file.metadata.row_group(group.number).num_rows != group.num_rows:
        raise OSError("its row groups are others than before")
    if piece.skip == 0 and piece.num_rows < group.num_rows:
        # Only the first pages are decoded: the end of a slate that begins in the row group before.
        batches = file.iter_batches(batch_size=piece.num_rows, row_groups=[group.number], columns=names)
        return pa.Table.from_batches([next(batches)])
    return file.read_row_group(group.number, columns=names).slice(piece.skip, piece.num_rows)
