"""Reads the files of a day, chunk by chunk on a few threads, and holds every row against the contract.

Shape suffixes: N rows of a chunk.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trainer.recipe import LogsConfig
from trainer.storage.filesystem import open_parquet
from trainer.windows.arrays import one_array
from trainer.windows.contract import Breach, find_breaches, is_text
from trainer.windows.hashing import hash_ids, hash_strings
from trainer.windows.preparing.buckets import Place
from trainer.windows.preparing.inputs import DayInputs, InputFile, Listing, Unit, unreadable
from trainer.windows.preparing.tally import Tally

NUM_THREADS = 2
CHUNK_ROWS = 65_536
CHUNK_BYTES = 24 * 1024**2
"""A chunk holds fewer rows where they are long, as those with images are."""

_Part = TypeVar("_Part")

QUARANTINE_COLUMNS = (("reason", pa.string()), ("file", pa.string()), ("row", pa.int64()))


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Rows of a day that were read together.

    Attributes:
        place: Where they were found, to be sorted by.
        table: All of them, in the types of the contract.
        good_N: Numbers of those that obey it, ascending; the others may hold nulls.
        broken: Those that do not, with `QUARANTINE_COLUMNS`: the first rule that they break, their file and row; None
            when there are none.
        text_checks: Of ids that are text, by column, a second hash of each row's.
    """

    place: Place
    table: pa.Table
    good_N: NDArray[np.int64]
    broken: pa.Table | None
    text_checks: dict[str, NDArray[np.uint64]]


def scan(
    inputs: DayInputs,
    logs: LogsConfig,
    listing: Listing,
    late_hours: int,
    tally: Tally,
    take: Callable[[Chunk], None],
    on_rows: Callable[[int], None] = lambda num_rows: None,
) -> None:
    """Reads every row of a day once.

    Args:
        inputs: The day's files.
        logs: Shape of the log.
        listing: Which day it is.
        late_hours: How long after a day its rows may still come, in the next day's folder.
        tally: Takes what is wrong. Files that cannot be read are noted there, and reading goes on with the others.
        take: Called with each chunk, from several threads.
        on_rows: Called with how many rows were read, from several threads.

    Raises:
        InputError: A file is gone.
        StorageError: Storage failed for too long.
    """
    reader = _Reader(inputs, logs, listing, late_hours, tally)

    def read(unit: Unit) -> None:
        try:
            for chunk in reader.chunks(unit):
                take(chunk)
                on_rows(chunk.table.num_rows)
        except _UnreadableError as error:
            tally.add_line(unit.file.index, str(error))

    share_out(read, list(inputs.units()))


def share_out(do: Callable[[_Part], None], parts: Sequence[_Part]) -> None:
    """Has threads do parts of some work; after a failure none is begun anew, and the first one is raised."""
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        futures = [pool.submit(do, part) for part in parts]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    for future in futures:
        if not future.cancelled():
            future.result()


class _UnreadableError(Exception):
    """A file's content is no whole Parquet; holds the line that says so."""


class _Reader:
    def __init__(self, inputs: DayInputs, logs: LogsConfig, listing: Listing, late_hours: int, tally: Tally) -> None:
        self._logs, self._day, self._late_hours, self._tally = logs, listing.day, late_hours, tally
        self._start = datetime.combine(listing.day, time(), UTC)
        row_bytes = max(inputs.num_bytes // max(inputs.num_rows, 1), 1)
        self._chunk_rows = max(min(CHUNK_ROWS, CHUNK_BYTES // row_bytes), 1)

    def chunks(self, unit: Unit) -> Iterator[Chunk]:
        for first_row, table in self._tables(unit):
            yield self._chunk(unit.file, first_row, table)

    def _tables(self, unit: Unit) -> Iterator[tuple[int, pa.Table]]:
        """Rows as they are found, with where they begin in their file."""
        names, uri = unit.file.columns.names, unit.file.uri
        try:
            with open_parquet(uri) as file:
                for group in unit.row_groups:
                    first_row = group.first_row
                    groups = [group.number]  # one at a time: what is far is read ahead, but no more than this
                    for batch in file.iter_batches(
                        self._chunk_rows, row_groups=groups, columns=names, use_threads=False
                    ):
                        yield first_row, pa.Table.from_batches([batch])
                        first_row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise _UnreadableError(unreadable(uri, error)) from error

    def _chunk(self, file: InputFile, first_row: int, found: pa.Table) -> Chunk:
        numbers_N = np.arange(first_row, first_row + found.num_rows)
        table, checks = _in_contract_types(found, file.columns)
        is_ours_N = self._is_ours(table, file)
        if not is_ours_N.all():
            table, numbers_N = table.filter(pa.array(is_ours_N)), numbers_N[is_ours_N]
            checks = {name: check_N[is_ours_N] for name, check_N in checks.items()}
        # The rows of a late file that are not ours belong to the day whose folder it lies in.
        self._tally.add_rows(table.num_rows, 0 if file.is_late else found.num_rows - table.num_rows)
        breaches = find_breaches(table, self._logs, self._day, self._late_hours)
        broken, good_N = None, np.arange(table.num_rows)
        if any(len(breach.bad_rows) for breach in breaches):
            self._tally.add_breaches(file.index, file.uri, breaches, numbers_N)
            rule_N = _first_broken(table.num_rows, breaches)
            good_N, bad_N = np.flatnonzero(rule_N < 0), np.flatnonzero(rule_N >= 0)
            reasons = [f"{breaches[number].column}: {breaches[number].rule}" for number in rule_N[bad_N].tolist()]
            self._tally.add_broken(reasons)
            broken = _quarantined(table.take(pa.array(bad_N)), reasons, file.uri, numbers_N[bad_N])
        place = (file.index, first_row)
        return Chunk(place=place, table=table, good_N=good_N, broken=broken, text_checks=checks)

    def _is_ours(self, table: pa.Table, file: InputFile) -> NDArray[np.bool_]:
        """Which rows belong to this day, as far as the folder can tell.

        Rows of the last hours before a day belong to the day before it, whose preparation reads them too.
        """
        if not self._late_hours or "ts" not in table.column_names:
            return np.ones(table.num_rows, np.bool_)
        ts = one_array(table["ts"])
        begin = self._start + timedelta(days=1) if file.is_late else self._start
        is_late = pc.and_(pc.less(ts, begin), pc.greater_equal(ts, begin - timedelta(hours=self._late_hours)))
        is_late_N: NDArray[np.bool_] = pc.fill_null(is_late, False).to_numpy(zero_copy_only=False)
        return is_late_N if file.is_late else ~is_late_N


def _in_contract_types(found: pa.Table, wanted: pa.Schema) -> tuple[pa.Table, dict[str, NDArray[np.uint64]]]:
    """The table in the contract's types, ids of text as numbers; and a second hash of those."""
    checks = {}
    for index, field in enumerate(found.schema):
        if field.name in wanted.names and wanted.field(field.name).type != field.type and is_text(field.type):
            if pa.types.is_string(wanted.field(field.name).type):
                continue
            column = one_array(found.column(index))
            found = found.set_column(index, field.name, hash_ids(column))
            if field.name in ("user_id", "pin_id"):
                checks[field.name] = hash_strings(_decoded(column), seed=1)
    # Nulls are told with their rows, so the cast must let them through.
    nullable = pa.schema([field.with_nullable(True) for field in wanted])
    return found.select(wanted.names).cast(nullable), checks


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _first_broken(num_rows: int, breaches: Sequence[Breach]) -> NDArray[np.int64]:
    """The number of the first rule that each row breaks; -1 where none."""
    rule_N = np.full(num_rows, -1)
    for number in reversed(range(len(breaches))):
        rule_N[breaches[number].bad_rows.to_numpy().astype(np.int64)] = number
    return rule_N


def quarantine_schema(columns: pa.Schema) -> pa.Schema:
    """Of rows that break the contract: any value may be null, and three columns say what is wrong with them."""
    nullable = [field.with_nullable(True) for field in columns]
    return pa.schema([*nullable, *(pa.field(name, kind) for name, kind in QUARANTINE_COLUMNS)])


def _quarantined(table: pa.Table, reasons: list[str], file: str, numbers_N: NDArray[np.int64]) -> pa.Table:
    added = (reasons, [file] * len(reasons), numbers_N)
    columns = [pa.array(values, kind) for (_, kind), values in zip(QUARANTINE_COLUMNS, added, strict=True)]
    return pa.Table.from_arrays([*table.columns, *columns], schema=quarantine_schema(table.schema))
