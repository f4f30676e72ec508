"""The files of a day before a row of them is read: which they are, what columns they have, how they are read in parts.

With a late-arrival horizon, files of the next day's folder belong to a day too, where they hold rows of its last hours.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trainer.errors import InputError
from trainer.recipe import LogsConfig
from trainer.storage.filesystem import Stored, open_parquet
from trainer.storage.uris import join, name_of
from trainer.windows.contract import EXTRA_TYPES, arrow_schema, id_problems, type_problems
from trainer.windows.logs import Fingerprint, day_folder, find_files, fingerprint, stat_files

UNIT_BYTES = 128 * 1024**2
"""About what one thread reads before it takes the next unit, decoded."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_NUM_FINGERPRINTS_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What lies in storage for a day; nothing was read.

    Attributes:
        day: The UTC day.
        files: In its own folder, by name.
        late_files: In the next day's folder, by name; empty without a late-arrival horizon.
    """

    day: date
    files: tuple[Stored, ...]
    late_files: tuple[Stored, ...]

    @property
    def modified_s(self) -> float:
        """When the newest of them was written, seconds since 1970."""
        return max(file.modified_s for file in (*self.files, *self.late_files))

    def to_json(self) -> list[list[list[Any]]]:
        """What tells one state of the log from another, as far as that can be told without reading."""
        return [[[file.name, file.num_bytes, file.version] for file in of] for of in (self.files, self.late_files)]


def list_day(logs_uri: str, day: date, late_hours: int) -> Listing:
    """Looks at what lies in storage for `day`.

    Raises:
        InputError: There is no such day.
        StorageError: Storage failed for too long.
    """
    late = find_files(logs_uri, day + timedelta(days=1)) if late_hours else []
    return Listing(day=day, files=tuple(stat_files(logs_uri, day)), late_files=tuple(late))


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """A row group of a file: its number there, its first row, its rows, and about how many bytes they are, decoded."""

    number: int
    first_row: int
    num_rows: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file, opened once.

    Attributes:
        index: Its place among the day's files; those of the next day's folder come last.
        uri: Where it lies.
        is_late: Whether it lies in the next day's folder.
        found: Its columns, as they were found.
        columns: The columns of the contract that it has in a sound type, in the contract's types.
        row_groups: What is read of it.
        problems: What is wrong with its columns, one line each.
    """

    index: int
    uri: str
    is_late: bool
    found: pa.Schema
    columns: pa.Schema
    row_groups: tuple[RowGroup, ...]
    problems: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name within its folder."""
        return name_of(self.uri)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What one thread reads at a time: row groups of one file."""

    file: InputFile
    row_groups: tuple[RowGroup, ...]


@dataclass(frozen=True, kw_only=True)
class DayInputs:
    """The files of a day, opened once each.

    Attributes:
        files: Those that could be opened.
        schema: The columns that all of them should have, in the contract's types.
        problems: What is wrong with files or their columns, by the index of the file, one line each.
    """

    files: tuple[InputFile, ...]
    schema: pa.Schema
    problems: tuple[tuple[int, str], ...]

    @property
    def num_rows(self) -> int:
        """Rows that are read."""
        return sum(group.num_rows for file in self.files for group in file.row_groups)

    @property
    def num_bytes(self) -> int:
        """About what they are, decoded."""
        return sum(group.num_bytes for file in self.files for group in file.row_groups)

    def units(self) -> Iterator[Unit]:
        """What threads share out among each other."""
        for file in self.files:
            groups: list[RowGroup] = []
            for group in file.row_groups:
                groups.append(group)
                if sum(other.num_bytes for other in groups) >= UNIT_BYTES:
                    yield Unit(file=file, row_groups=tuple(groups))
                    groups = []
            if groups:
                yield Unit(file=file, row_groups=tuple(groups))


def open_day(logs: LogsConfig, listing: Listing) -> DayInputs:
    """Opens every file of a day and holds its columns against the contract.

    Raises:
        InputError: A file may not be read, or is gone.
        StorageError: Storage failed for too long.
    """
    opened: list[tuple[int, str, bool, pa.Schema, tuple[RowGroup, ...]]] = []
    problems: list[tuple[int, str]] = []
    for index, (uri, is_late) in enumerate(_uris(logs.uri, listing)):
        try:
            with open_parquet(uri) as file:
                groups = _row_groups(file, listing.day if is_late else None)
                if groups or not is_late:
                    opened.append((index, uri, is_late, file.schema_arrow, groups))
        except (pa.ArrowException, OSError) as error:
            problems.append((index, unreadable(uri, error)))
    extras = [name for name in EXTRA_TYPES if any(name in found.names for _, _, _, found, _ in opened)]
    wanted = arrow_schema(logs, extras)
    files = [_input_file(*of, wanted) for of in opened]
    problems += [(file.index, line) for file in files for line in file.problems]
    sound = {file.uri: _subset(file.found, file.columns.names) for file in files}
    index_of = {file.uri: file.index for file in files}
    problems += [(index_of[uri], line) for uri, line in id_problems(sound)]
    return DayInputs(files=tuple(files), schema=wanted, problems=tuple(sorted(problems, key=lambda item: item[0])))


def fingerprints(files: Sequence[InputFile]) -> list[Fingerprint]:
    """What each file is, in their order.

    Raises:
        InputError: One cannot be read.
        StorageError: Storage failed for too long.
    """
    with ThreadPoolExecutor(_NUM_FINGERPRINTS_AT_ONCE) as pool:
        return list(pool.map(lambda file: fingerprint(file.uri), files))


def unreadable(uri: str, error: Exception) -> str:
    """The line for a file whose content is no whole Parquet."""
    if isinstance(error, InputError):
        return str(error)
    reason = str(error).splitlines()[0].rstrip(". ")
    return f"{uri}: cannot be read as Parquet ({reason}); the file is corrupt or cut short, write it again"


def _uris(logs_uri: str, listing: Listing) -> Iterator[tuple[str, bool]]:
    own, following = day_folder(logs_uri, listing.day), day_folder(logs_uri, listing.day + timedelta(days=1))
    yield from ((join(own, file.name), False) for file in listing.files)
    yield from ((join(following, file.name), True) for file in listing.late_files)


def _input_file(
    index: int, uri: str, is_late: bool, found: pa.Schema, groups: tuple[RowGroup, ...], wanted: pa.Schema
) -> InputFile:
    wrong = type_problems(found, wanted, uri)
    return InputFile(
        index=index,
        uri=uri,
        is_late=is_late,
        found=found,
        columns=pa.schema([field for field in wanted if field.name not in wrong]),
        row_groups=groups,
        problems=tuple(wrong.values()),
    )


def _subset(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _row_groups(file: pq.ParquetFile, late_for: date | None) -> tuple[RowGroup, ...]:
    """Those of a file; of one in the folder after `late_for`, those that may hold rows of that day."""
    groups, first_row = [], 0
    for number in range(file.metadata.num_row_groups):
        found = file.metadata.row_group(number)
        if late_for is None or _may_hold(file, number, late_for):
            num_bytes = sum(_decoded_bytes(found.column(index)) for index in range(found.num_columns))
            groups.append(RowGroup(number=number, first_row=first_row, num_rows=found.num_rows, num_bytes=num_bytes))
        first_row += found.num_rows
    return tuple(groups)


def _decoded_bytes(column: Any) -> int:
    width = _WIDTHS.get(column.physical_type)
    return int(column.total_uncompressed_size if width is None else width * column.num_values)


def _may_hold(file: pq.ParquetFile, number: int, day: date) -> bool:
    """Whether a row group has a row of `day` or before, by its statistics or, without any, by its times."""
    names = [file.schema.column(index).path for index in range(len(file.schema))]
    if "ts" not in names:
        return True  # type_problems will tell
    end = datetime.combine(day + timedelta(days=1), time(), UTC)
    statistics = file.metadata.row_group(number).column(names.index("ts")).statistics
    if statistics is not None and statistics.has_min_max and isinstance(statistics.min, datetime):
        first = statistics.min if statistics.min.tzinfo else statistics.min.replace(tzinfo=UTC)
        return bool(first < end)
    ts = file.read_row_group(number, columns=["ts"])["ts"]
    if not (pa.types.is_timestamp(ts.type) and ts.type.tz):
        return True
    return bool(pc.any(pc.less(ts, pa.scalar(end, ts.type))).as_py())
