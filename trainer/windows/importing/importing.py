"""The import itself: every source file once into a scratch folder by day, then day after day into the log.

Memory is a few blocks of a source, `spilling.BUFFER_BYTES`, the histories' state (`histories`), one day's engagements
and, where positions or labels ask for it, the ids of one day's rows or of those that an engagement may belong to.

Shape legend: N rows of a chunk, R rows of a day.
"""

import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from trainer.errors import InputError
from trainer.windows.importing.days import DayMaker
from trainer.windows.importing.files import SourceFile
from trainer.windows.importing.mapping import Mapping
from trainer.windows.importing.note import write_note
from trainer.windows.importing.records import Chunk, Reader
from trainer.windows.importing.rows import ORDER, Engagements, Impressions
from trainer.windows.importing.spilling import Scratch
from trainer.windows.importing.summary import ImportSummary, Totals
from trainer.windows.importing.tally import Tally

_SECOND_US = 1_000_000
_HEADERS_AT_ONCE = 8  # far files answer slowly
_log = logging.getLogger(__name__)


class Import:
    """One import.

    Args:
        mapping: What the source means.
        mapping_file: Where it lies, for what is said.
        out: Local folder to fill with ``dt=YYYY-MM-DD/*.parquet``; it is the caller's to publish it when all went well
            and to remove it when not.

    Raises:
        InputError: An expression, a zone or a pattern of the mapping does not read.
    """

    def __init__(self, mapping: Mapping, mapping_file: str, out: Path) -> None:
        self._mapping, self._mapping_file, self._out = mapping, mapping_file, out
        self._impressions = Impressions(mapping, mapping_file)
        joined = mapping.engagements
        self._engagements = None if joined is None else Engagements(joined, mapping_file)
        self._tally = Tally(policy=mapping.on_bad_row)
        self._totals = Totals(mapping.label_names)
        self._scratch = Scratch(out / ".scratch")

    def run(self, files: Sequence[SourceFile], engagement_files: Sequence[SourceFile] = ()) -> ImportSummary:
        """Reads `files`, and `engagement_files` where the mapping has a source of engagements, and writes the log.

        Raises:
            InputError: A file does not fit the mapping, rows are bad and the mapping refuses them, or the log cannot be
                written.
            StorageError: Storage failed for too long.
        """
        started_s = time.monotonic()
        has_own = self._mapping.engagements is not None and self._mapping.engagements.source is not None
        if has_own != bool(engagement_files):
            what = "not given, but the mapping has engagements.source" if has_own else "given, but the mapping has no"
            raise InputError(f"--engagements: {what} engagements.source; give both or neither")
        self._read(files, engagement_files)
        self._tally.finish(is_empty=not self._scratch.days("rows"))
        if not self._scratch.days("rows"):
            where = " that source.where takes" if self._mapping.source.where else ""
            raise InputError(f"{files[0].uri}: no file holds an impression{where}; mend the mapping or name others")
        self._write_days()
        shutil.rmtree(self._out / ".scratch", ignore_errors=True)
        num_bytes = sum(file.num_bytes for file in (*files, *engagement_files))
        summary = self._totals.summary(self._tally, num_bytes, time.monotonic() - started_s)
        write_note(self._out, self._mapping, self._mapping_file, (*files, *engagement_files), summary)
        _log.info(
            "%d rows of %d days from %.1f MB in %.1f s",
            summary.num_rows,
            len(summary.days),
            num_bytes / 1e6,
            summary.duration_s,
        )
        return summary

    def _read(self, files: Sequence[SourceFile], engagement_files: Sequence[SourceFile]) -> None:
        parts = list(self._parts(files, engagement_files))
        for part in parts:
            with ThreadPoolExecutor(_HEADERS_AT_ONCE) as pool:
                list(pool.map(part.reader.check_header, part.files))
        num_bytes = sum(file.num_bytes for part in parts for file in part.files)
        with tqdm(total=num_bytes, desc="read", unit="B", unit_scale=True, smoothing=0) as bar:
            done = 0
            for part in parts:
                for file in part.files:
                    for chunk in part.reader.read(file, partial(_advance, bar, done)):
                        self._take(chunk, part)
                    done += file.num_bytes
                part.reader.check_seen()
        self._scratch.flush()

    def _parts(self, files: Sequence[SourceFile], engagement_files: Sequence[SourceFile]) -> Iterator["_Part"]:
        """The source of impressions; that of engagements, or with it where they lie in the same files."""
        shown, engaged = self._impressions, self._engagements
        joined = self._mapping.engagements
        if engaged is None or joined is None:
            yield _Part(Reader(self._mapping.source, shown.expressions), files, shown, None)
        elif joined.source is None:
            both = [*shown.expressions, *engaged.expressions]
            yield _Part(Reader(self._mapping.source, both), files, shown, engaged)
        else:
            yield _Part(Reader(self._mapping.source, shown.expressions), files, shown, None)
            yield _Part(Reader(joined.source, engaged.expressions), engagement_files, None, engaged)

    def _take(self, chunk: Chunk, part: "_Part") -> None:
        for line, what in chunk.malformed:
            self._tally.add("source", what, f"{chunk.file}, line {line}")
        if part.shown is not None:
            self._take_shown(part.shown.of(chunk, self._tally))
        if part.engaged is not None:
            self._take_engaged(part.engaged.of(chunk, self._tally))

    def _take_shown(self, table: pa.Table) -> None:
        if self._tally.is_refused or not table.num_rows:
            return
        ts_us = _ints(table["ts"])
        needed = ["request_id", "user_id", "pin_id", "ts"] + ([ORDER] if ORDER in table.column_names else [])
        if "position" not in table.column_names or self._engagements is not None:
            self._scratch.add("keys", table.select(needed), ts_us)
        self._scratch.add("rows", table, ts_us)
        labels = {label: np.asarray(table[label].to_numpy(), np.bool_) for label in self._mapping.labels}
        self._add_engagements(table, ts_us, labels)

    def _take_engaged(self, table: pa.Table) -> None:
        if self._tally.is_refused or not table.num_rows:
            return
        assert self._mapping.engagements is not None
        ts_us, bits = _ints(table["ts"]), _ints(table["bits"])
        self._scratch.add("events", table, ts_us)
        names = self._mapping.engagements.labels
        self._add_engagements(table, ts_us, {label: bits >> bit & 1 > 0 for bit, label in enumerate(names)})

    def _add_engagements(self, table: pa.Table, ts_us: NDArray[np.int64], labels: dict[str, NDArray[np.bool_]]) -> None:
        """Lays down what histories are built from: of a row with several labels, the first that the mapping names."""
        history = self._mapping.history
        counted = {label: action for label, action in history.actions.items() if label in labels}
        if history.from_column is not None or not counted:
            return
        holds = np.stack([labels[label] for label in counted])
        rows = np.flatnonzero(holds.any(axis=0))
        actions = np.array(list(counted.values()), np.int8)[holds[:, rows].argmax(axis=0)]
        known_at_us = ts_us[rows] + round(history.known_after_s * _SECOND_US)
        columns = {name: _ints(table[name])[rows] for name in ("user_id", "pin_id")}
        engaged = pa.table({**columns, "known_at": known_at_us, "action": actions})
        self._scratch.add("engagements", engaged, known_at_us)

    def _write_days(self) -> None:
        key = ("user_id", "pin_id") if self._engagements is None else self._engagements.key
        maker = DayMaker(self._mapping, self._scratch, key, str(self._out), self._totals)
        for day in tqdm(self._scratch.days("rows", "engagements"), desc="write", unit="day"):
            maker.make(day)
        self._totals.take_joined(maker.num_events, maker.num_joined)


class _Part(NamedTuple):
    """Files of one source, and what its records may be."""

    reader: Reader
    files: Sequence[SourceFile]
    shown: Impressions | None
    engaged: Engagements | None


def _advance(bar: "tqdm[NoReturn]", begin: int, num_read: int) -> None:
    bar.update(begin + num_read - bar.n)


def _ints(column: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(column.to_numpy(), np.int64)
