"""Prepared days of any shape: how many slates of which sizes, in which files and row groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.trainer import tiny
from trainer.windows.manifest import Partition


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of a window.

    Attributes:
        sizes: Rows of each slate.
        day_cuts: Slates after which a day ends; days may be empty.
        file_cuts: Rows after which a file ends with the slate that they end in; files may be empty.
        group_rows: Rows after which a row group ends with the slate that they end in.
    """

    sizes: tuple[int, ...]
    day_cuts: tuple[int, ...] = ()
    file_cuts: tuple[int, ...] = ()
    group_rows: int = 16

    @property
    def num_rows(self) -> int:
        """Of the window."""
        return sum(self.sizes)


def rows_of(shape: Shape, *, with_media: bool = False) -> pa.Table:
    """The rows of a window; the first pin feature of each is its own number, so that a batch tells which it holds."""
    num_rows = shape.num_rows
    made = tiny.table_with_media if with_media else tiny.table
    table = made(num_slates=1 + num_rows, seed=len(shape.sizes)).slice(0, num_rows)  # a slate is a row at least
    slate = np.repeat(np.arange(len(shape.sizes)), shape.sizes)
    request_id = pa.array(np.random.default_rng(1).permutation(10_000)[: len(shape.sizes)][slate])
    features = pa.array([[float(row), row / 7, -1.0] for row in range(num_rows)], pa.list_(pa.float32()))
    for name, values in (("request_id", request_id), ("pin_features", features)):
        place = table.column_names.index(name)
        table = table.set_column(place, name, values.cast(table.schema.field(name).type))
    return table


def write_days(folder: Path, table: pa.Table, shape: Shape) -> list[Partition]:
    """Writes the rows of a window as its days."""
    ends = np.cumsum((0, *shape.sizes))
    days = [0, *(int(ends[cut]) for cut in sorted(shape.day_cuts)), shape.num_rows]
    return [
        _write_day(folder / str(number), date(2024, 1, 1) + timedelta(days=number), table, begin, end, shape)
        for number, (begin, end) in enumerate(pairwise(days))
    ]


def _write_day(folder: Path, day: date, table: pa.Table, begin: int, end: int, shape: Shape) -> Partition:
    folder.mkdir(parents=True)
    slate_ends = np.cumsum(shape.sizes)
    cuts = [begin, *_ends_at(slate_ends, [cut for cut in sorted(shape.file_cuts) if begin < cut < end]), end]
    files = []
    for number, (first, last) in enumerate(pairwise(cuts)):
        files.append(str(folder / f"part-{number:05}-0123abcd.parquet"))
        with pq.ParquetWriter(files[-1], table.schema, write_page_checksum=True) as writer:
            while first < last:
                (group_end,) = _ends_at(slate_ends, [min(first + shape.group_rows, last)])
                writer.write_table(table.slice(first, group_end - first), row_group_size=group_end - first)
                first = group_end
    return Partition(paths=(str(folder),), day=day, num_rows=end - begin, num_slates=1, files=tuple(files))


def _ends_at(slate_ends: NDArray[np.int64], rows: Sequence[int]) -> list[int]:
    """Where the slates end that some rows, counted from 1, are in."""
    return [int(slate_ends[np.searchsorted(slate_ends, row)]) for row in rows]


def with_weights(table: pa.Table, weights: Sequence[float]) -> pa.Table:
    """The rows of a day whose negatives were sampled."""
    return table.append_column("weight", pa.array(weights, pa.float32()))
