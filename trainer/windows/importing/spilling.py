"""Rows in any order, laid down by UTC day in a scratch folder, so that days can be worked on one after another.

What is not yet on disk is bounded by `BUFFER_BYTES`, whatever the number of days.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.storage.errors import explained
from trainer.storage.publishing import ROW_GROUP_ROWS

BUFFER_BYTES = 64 * 1024**2
DAY_US = 86_400_000_000

Kind = Literal["rows", "keys", "events", "engagements"]


class Scratch:
    """Tables of a few kinds, each split by day; a day's rows keep the order in which they were added.

    Args:
        folder: Is made; whoever owns it removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[tuple[Kind, int], list[pa.Table]] = defaultdict(list)
        self._waiting_bytes = 0
        self._days: dict[Kind, set[int]] = defaultdict(set)

    def add(self, kind: Kind, table: pa.Table, ts_us: NDArray[np.int64]) -> None:
        """Adds rows, each to the day (since 1970) of its `ts_us` (N,).

        Raises:
            InputError: The folder cannot be written to.
        """
        day = ts_us // DAY_US
        if not len(day):
            return
        if (day != day[0]).any():
            order = np.argsort(day, kind="stable")
            day, table = day[order], table.take(pa.array(order))
        starts = np.flatnonzero(np.diff(day, prepend=day[0] - 1))
        for begin, end in zip(starts, [*starts[1:], len(day)], strict=True):
            part = table.slice(int(begin), int(end - begin))
            self._waiting[kind, int(day[begin])].append(part)
            self._days[kind].add(int(day[begin]))
            self._waiting_bytes += part.nbytes
        if self._waiting_bytes > BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what waits; call it once after the last `add`."""
        with explained(self._folder, "written"):
            for (kind, day), tables in self._waiting.items():
                path = self._path(kind, day)
                path.parent.mkdir(parents=True, exist_ok=True)
                table = pa.concat_tables(tables).combine_chunks()
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                # A file is a row of streams: none has to stay open, however many days there are.
                with path.open("ab") as file, pa.ipc.new_stream(file, table.schema, options=options) as writer:
                    writer.write_table(table, max_chunksize=ROW_GROUP_ROWS)
        self._waiting.clear()
        self._waiting_bytes = 0

    def days(self, *kinds: Kind) -> list[int]:
        """Days, since 1970, that have rows of any of these kinds, oldest first."""
        return sorted(set().union(*(self._days[kind] for kind in kinds)))

    def read(self, kind: Kind, day: int) -> Iterator[pa.RecordBatch]:
        """The rows of a day in the order in which they were added; none of a day that has none."""
        path = self._path(kind, day)
        if day not in self._days[kind]:
            return
        with pa.OSFile(str(path)) as file:
            num_bytes = file.size()
            while file.tell() < num_bytes:
                with pa.ipc.open_stream(file) as stream:
                    yield from stream

    def columns(self, kind: Kind, day: int, names: tuple[str, ...]) -> list[NDArray[np.generic]]:
        """Whole columns without nulls of a day, in memory."""
        batches = list(self.read(kind, day))
        if not batches:
            return [np.empty(0, np.int64) for _ in names]
        return [np.concatenate([batch[name].to_numpy(zero_copy_only=False) for batch in batches]) for name in names]

    def drop(self, kind: Kind, day: int) -> None:
        """Gives the space of a day back."""
        self._path(kind, day).unlink(missing_ok=True)
        self._days[kind].discard(day)

    def _path(self, kind: Kind, day: int) -> Path:
        return self._folder / kind / f"{day}.arrow"
