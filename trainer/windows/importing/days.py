"""One day of the scratch folder as one day of the log: positions, joined labels and histories are put to its rows.

Shape legend: N rows of a batch, R rows of the day.
"""

from collections.abc import Iterator
from datetime import date
from math import ceil

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.errors import InputError
from trainer.storage.publishing import ROW_GROUP_ROWS, parquet_writer
from trainer.storage.uris import join
from trainer.windows.contract import arrow_schema
from trainer.windows.importing.fields import MAX_POSITION
from trainer.windows.importing.histories import Engagements, Histories
from trainer.windows.importing.joining import Joiner
from trainer.windows.importing.mapping import Mapping
from trainer.windows.importing.rows import ORDER
from trainer.windows.importing.spilling import BUFFER_BYTES, Kind, Scratch
from trainer.windows.importing.summary import Totals
from trainer.windows.logs import day_folder

Ints = NDArray[np.int64]

_HOUR_US = 3_600_000_000
_KINDS: tuple[Kind, ...] = ("rows", "keys", "engagements")


class DayMaker:
    """Makes days, the oldest first.

    Args:
        mapping: What the source means.
        scratch: Its rows, by day.
        key: What an engagement and its impression share.
        out: Folder of the log.
        totals: Takes account of what is written.
    """

    def __init__(self, mapping: Mapping, scratch: Scratch, key: tuple[str, str], out: str, totals: Totals) -> None:
        self._mapping, self._scratch, self._out, self._totals = mapping, scratch, out, totals
        joined = mapping.engagements
        within_us = 0 if joined is None else ceil(joined.within_hours * _HOUR_US)
        self._joiner = None if joined is None else Joiner(scratch, key, within_us)
        self._histories = None if mapping.history.from_column is not None else Histories(mapping.history.length)
        self._schema = arrow_schema(mapping.logs(out), mapping.extras)

    @property
    def num_events(self) -> int:
        """Engagements so far that are records of their own."""
        return 0 if self._joiner is None else self._joiner.num_events

    @property
    def num_joined(self) -> int:
        """Those of them that an impression was found for."""
        return 0 if self._joiner is None else self._joiner.num_joined

    def make(self, day: int) -> None:
        """Writes a day, days since 1970, and gives its scratch space back; one that only has engagements has no file.

        Raises:
            InputError: A slate has more rows than there are positions, or the folder cannot be written to.
        """
        if self._histories is not None:
            names = ("user_id", "pin_id", "known_at", "action")
            user, pin, known_at_us, action = self._scratch.columns("engagements", day, names)
            engagements = Engagements(
                user.astype(np.int64), pin.astype(np.int64), known_at_us.astype(np.int64), action.astype(np.int8)
            )
            self._histories.open_day(day, engagements)
        if day in self._scratch.days("rows"):
            self._write(day)
        if self._histories is not None:
            self._histories.close_day()
        # All engagements that may belong to this day have been joined by now.
        for kind in _KINDS:
            self._scratch.drop(kind, day)

    def _write(self, day: int) -> None:
        that_day = date.fromordinal(date(1970, 1, 1).toordinal() + day)
        folder = day_folder(self._out, that_day)
        position_R = None if "position" in self._names(day) else self._positions(day, that_day)
        num_rows = None if self._joiner is None else len(self._scratch.columns("keys", day, ("ts",))[0])
        bits_R = None if self._joiner is None or num_rows is None else self._joiner.bits_of(day, num_rows)
        begin = 0
        with parquet_writer(join(folder, "part-00000.parquet"), self._schema) as writer:
            for batch in _regrouped(self._scratch.read("rows", day)):
                rows = slice(begin, begin + batch.num_rows)
                begin += batch.num_rows
                table = self._whole(batch, position_R, bits_R, rows)
                self._totals.take(that_day, table)
                writer.write_table(table, row_group_size=ROW_GROUP_ROWS)

    def _names(self, day: int) -> list[str]:
        return list(next(self._scratch.read("rows", day)).schema.names)

    def _whole(self, batch: pa.Table, position_R: Ints | None, bits_R: Ints | None, rows: slice) -> pa.Table:
        columns = {name: batch[name] for name in batch.column_names if name != ORDER}
        if position_R is not None:
            columns["position"] = position_R[rows]
        if bits_R is not None:
            assert self._mapping.engagements is not None
            bits = bits_R[rows]
            columns |= {label: bits >> bit & 1 > 0 for bit, label in enumerate(self._mapping.engagements.labels)}
        if self._histories is not None:
            user, ts_us = (np.asarray(batch[name].to_numpy(), np.int64) for name in ("user_id", "ts"))
            columns["history"], columns["history_actions"] = self._histories.of(user, ts_us)
        columns["ts"] = batch["ts"].cast(pa.timestamp("us", tz="UTC"))
        return pa.table({name: columns[name] for name in self._schema.names}).cast(self._schema)

    def _positions(self, day: int, that_day: date) -> Ints:
        """Ranks of rows within their slates, from 0: by what the mapping orders them by, else as they came."""
        (request_R,) = self._scratch.columns("keys", day, ("request_id",))
        by = self._mapping.position.order_by is not None
        order = (
            np.lexsort((self._scratch.columns("keys", day, (ORDER,))[0], request_R))
            if by
            else np.argsort(request_R, kind="stable")
        )
        in_order = request_R[order]
        starts = np.flatnonzero(np.diff(in_order, prepend=in_order[0] - 1))
        sizes = np.diff(starts, append=len(order))
        if sizes.max() > MAX_POSITION + 1:
            raise InputError(
                f"{self._out}: slate {in_order[starts[sizes.argmax()]]} has {sizes.max():,} rows on {that_day}, more "
                f"than {MAX_POSITION + 1:,}; mend request_id: a slate is one list that was shown"
            )
        position_R = np.empty(len(order), np.int64)
        position_R[order] = np.arange(len(order)) - np.repeat(starts, sizes)
        return position_R


def _regrouped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows, a row group at a time; one of pictures has fewer rows."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= ROW_GROUP_ROWS:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, ROW_GROUP_ROWS)
            waiting = table.slice(ROW_GROUP_ROWS).to_batches()
        elif sum(part.nbytes for part in waiting) >= BUFFER_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)
