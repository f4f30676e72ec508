"""Prepared days as row groups, read one after another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from trainer.batches.media import MEDIA_COLUMNS, require_media
from trainer.errors import InputError
from trainer.windows.manifest import Partition
from trainer.windows.prepared import REMEDY, open_prepared


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """A part of a Parquet file that is read as one: whole slates, as preparation writes them.

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


def row_groups_of(partitions: Sequence[Partition]) -> list[RowGroup]:
    """The row groups of prepared days that have rows, in the order of these.

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
            if group.num_rows
        ]


def read_row_groups(groups: Sequence[RowGroup], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some row groups, one table each, with those of the columns that a file has.

    Raises:
        InputError: A file cannot be read, or is not what it was, or lacks images or texts among the columns.
        StorageError: Storage failed for too long.
    """
    for uri, of_file in groupby(groups, key=lambda group: group.uri):
        with open_prepared(uri) as file:
            there = file.schema_arrow.names
            if MEDIA_COLUMNS[0] in columns:
                require_media(there, uri)
            names = [name for name in columns if name in there]
            for group in of_file:
                if file.metadata.row_group(group.number).num_rows != group.num_rows:
                    raise OSError("its row groups are others than before")
                yield file.read_row_group(group.number, columns=names)
