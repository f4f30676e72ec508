"""Reads the files of one day and holds them against the log contract.

Pages are read with their checksums where the writer left any, and every file is fingerprinted before and after, so that
what was checked is what was fingerprinted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa

from trainer.errors import InputError
from trainer.recipe import LogsConfig
from trainer.storage.filesystem import open_parquet
from trainer.windows.contract import EXTRA_TYPES, arrow_schema, type_problems, value_problems
from trainer.windows.logs import Fingerprint, day_folder, fingerprint_files, list_files


@dataclass(frozen=True, kw_only=True)
class DayReading:
    """One day as it was found.

    Attributes:
        day: The UTC day.
        inputs: Fingerprints of its files, by name.
        table: All rows in the types of the contract, in the order of files and rows; None when there are problems.
        problems: One line each, with file, column, row and remedy.
    """

    day: date
    inputs: tuple[Fingerprint, ...]
    table: pa.Table | None
    problems: tuple[str, ...]


def fingerprint_day(logs: LogsConfig, day: date) -> tuple[Fingerprint, ...]:
    """Fingerprints of the files of `day`, by name.

    Raises:
        InputError: There is no such day, or a file cannot be read.
    """
    return fingerprint_files(logs.uri, day)


def inspect_day(logs: LogsConfig, day: date) -> DayReading:
    """Reads a day and collects everything that breaks the contract.

    Raises:
        InputError: There is no such day, or its files change while they are read.
    """
    inputs = fingerprint_day(logs, day)
    tables, problems = _read_files(list_files(logs.uri, day), logs, day)
    if fingerprint_day(logs, day) != inputs:
        raise InputError(
            f"{day_folder(logs.uri, day)}: files changed while they were read; run again when they are complete"
        )
    if not problems and not sum(table.num_rows for table in tables):
        problems = [f"{day_folder(logs.uri, day)}: the day has no rows; write it again or choose another date"]
    table = None if problems else pa.concat_tables(tables)
    return DayReading(day=day, inputs=inputs, table=table, problems=tuple(problems))


def read_day(logs: LogsConfig, day: date) -> DayReading:
    """Reads a day that must obey the contract; its `table` is there.

    Raises:
        InputError: There is no such day, or it breaks the contract: the first problem, and how many more there are.
    """
    reading = inspect_day(logs, day)
    if reading.problems:
        first, *others = reading.problems
        more = f" ({len(others)} more problems: `thawline data check` lists them)" if others else ""
        raise InputError(first + more)
    return reading


def _read_files(paths: Sequence[str], logs: LogsConfig, day: date) -> tuple[list[pa.Table], list[str]]:
    """Tables of the files that obey the contract, and the problems of those that do not."""
    schemas, problems = {}, []
    for path in paths:
        try:
            with open_parquet(path) as file:
                schemas[path] = file.schema_arrow
        except (pa.ArrowException, OSError) as error:
            problems.append(_unreadable(path, error))
    extras = [name for name in EXTRA_TYPES if any(name in schema.names for schema in schemas.values())]
    wanted = arrow_schema(logs, extras)
    tables = []
    for path, found in schemas.items():
        wrong_types = type_problems(found, wanted, path)
        problems.extend(wrong_types.values())
        sound = pa.schema([field for field in wanted if field.name not in wrong_types])
        try:
            with open_parquet(path) as file:
                table = _in_contract_types(file.read(columns=sound.names), sound)
        except (pa.ArrowException, OSError) as error:
            problems.append(_unreadable(path, error))
            continue
        problems.extend(value_problems(table, logs, day, path))
        tables.append(table)
    return tables, problems


def _in_contract_types(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    # Nulls are reported by value_problems with their rows, so the cast must let them through.
    nullable = pa.schema([field.with_nullable(True) for field in wanted])
    return table.select(wanted.names).cast(nullable)


def _unreadable(path: str, error: Exception) -> str:
    reason = str(error).splitlines()[0].rstrip(". ")
    return f"{path}: cannot be read as Parquet ({reason}); the file is corrupt or cut short, write it again"
