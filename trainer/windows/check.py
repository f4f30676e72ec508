"""Holds a log against its contract, day by day in flat memory, and explains what is still wrong with it.

What breaks one rule in one column is one problem, over all files and days: how often, the first of them, what to do,
and for a log that was imported the key of the mapping that it hangs on.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

from tqdm import tqdm

from trainer.errors import InputError
from trainer.recipe import LogsConfig
from trainer.windows.contract import Breach, breach_line
from trainer.windows.importing.note import Note, read_note
from trainer.windows.logs import list_days
from trainer.windows.reading import inspect_day

MAX_PROBLEMS = 100
_COLUMN = re.compile(r"column '(\w+)'")


@dataclass(frozen=True, kw_only=True)
class DaySummary:
    """What one day that obeys the contract holds.

    Attributes:
        day: The UTC day.
        num_rows: Impressions.
        num_slates: Distinct ``request_id``.
        num_duplicates: Rows that preparation will drop because a newer one has their (``request_id``, ``pin_id``).
        label_rates: Share of rows, by label.
    """

    day: date
    num_rows: int
    num_slates: int
    num_duplicates: int
    label_rates: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        line: The first place where it is, what is wrong there, how often that is so, and the remedy.
        column: The column that it is about; None where it is about a whole file or day.
        num_rows: Rows that have it; 0 where it is about whole files or days.
        num_files: Files that have it; 0 where it is about days.
        num_days: Days that have it.
        key: The mapping's key to change; None where the log was not imported, or no key does it.
    """

    line: str
    column: str | None
    num_rows: int
    num_files: int
    num_days: int
    key: str | None


@dataclass(frozen=True, kw_only=True)
class LogsReport:
    """What `check_logs` found.

    Attributes:
        uri: The log.
        days: The days that obey the contract, oldest first.
        problems: The first 100 of them, as they were met.
        num_problems: All of them.
    """

    uri: str
    days: tuple[DaySummary, ...]
    problems: tuple[Problem, ...]
    num_problems: int

    @property
    def is_sound(self) -> bool:
        """No problem was found."""
        return self.num_problems == 0

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values; days are ``YYYY-MM-DD``."""
        days = [{**asdict(summary), "day": summary.day.isoformat()} for summary in self.days]
        problems = [asdict(problem) for problem in self.problems]
        return {**asdict(self), "days": days, "problems": problems, "is_sound": self.is_sound}


def check_logs(
    logs: LogsConfig, first: date | None = None, last: date | None = None, late_hours: int = 0
) -> LogsReport:
    """Reads every day of a span and reports on it; a gap between days is a problem too.

    Args:
        logs: Where the log lies, and its shape.
        first: First day to read; the log's oldest when None.
        last: Last day to read; the log's newest when None.
        late_hours: How long after a day its rows may still come, in the next day's folder.

    Raises:
        InputError: The log holds no day at all, or none in the span.
        StorageError: Storage failed for too long.
    """
    known = list_days(logs.uri)
    if not known:
        raise InputError(f"{logs.uri}: holds no dt=YYYY-MM-DD/*.parquet; name the folder above the days")
    first, last = first or known[0], last or known[-1]
    there = {day for day in known if first <= day <= last}
    if not there:
        raise InputError(f"{logs.uri}: no day from {first} to {last}; it holds {known[0]} to {known[-1]}")
    problems = _Problems()
    summaries: list[DaySummary] = []
    for day in tqdm(sorted(there), desc="check", unit="day"):
        summary = _check_day(logs, day, late_hours, problems)
        summaries += [summary] if summary is not None else []
    problems.add_gaps(logs.uri, [day for day in _span(first, last) if day not in there])
    found = problems.told(read_note(logs.uri))
    return LogsReport(
        uri=logs.uri, days=tuple(summaries), problems=tuple(found[:MAX_PROBLEMS]), num_problems=len(found)
    )


def _span(first: date, last: date) -> Iterator[date]:
    return (first + timedelta(days=offset) for offset in range((last - first).days + 1))


def _check_day(logs: LogsConfig, day: date, late_hours: int, problems: "_Problems") -> DaySummary | None:
    try:
        reading = inspect_day(logs, day, late_hours)
    except InputError as error:
        problems.add_line(str(error), day)
        return None
    for line in reading.file_problems:
        problems.add_line(line, day)
    for seen in reading.sightings:
        problems.add_breach(seen.breach, seen.file, seen.first_row, seen.num_rows, day)
    if reading.problems:
        return None
    return DaySummary(
        day=day,
        num_rows=reading.num_rows,
        num_slates=reading.num_slates,
        num_duplicates=reading.num_duplicates,
        label_rates={label: count / reading.num_rows for label, count in reading.num_positive.items()},
    )


@dataclass(kw_only=True)
class _Group:
    """All that breaks one rule: the first place of it and its line without the counts, and the counts."""

    file: str
    line: str
    breach: Breach | None
    first_row: int
    column: str | None
    last_day: date
    num_rows: int = 0
    num_files: int = 0
    num_days: int = 1


class _Problems:
    """Gathers problems by column and rule; what is said of whole files is one rule where it is said in one way."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Group] = {}
        self._gaps: list[Problem] = []

    def add_line(self, line: str, day: date) -> None:
        """Takes what is wrong with a whole file or day."""
        file, _, rule = line.partition(": ")
        column = _COLUMN.search(rule)
        new = _Group(file=file, line=line, breach=None, first_row=0, column=column[1] if column else None, last_day=day)
        self._add(("", rule), new, day, 0)

    def add_breach(self, breach: Breach, file: str, first_row: int, num_rows: int, day: date) -> None:
        """Takes rows of one file that break one rule."""
        new = _Group(file=file, line="", breach=breach, first_row=first_row, column=breach.column, last_day=day)
        self._add((breach.column, breach.rule), new, day, num_rows)

    def add_gaps(self, uri: str, days: list[date]) -> None:
        """Takes days of the span that are not there."""
        if days:
            more = f" and {len(days) - 1} more days" if len(days) > 1 else ""
            line = f"{uri}: no logs for {days[0]}{more} of the span; add them, or name a span without"
            self._gaps = [Problem(line=line, column=None, num_rows=0, num_files=0, num_days=len(days), key=None)]

    def told(self, note: Note | None) -> list[Problem]:
        """The problems, as they were met; gaps come last."""
        return [_problem(group, note) for group in self._groups.values()] + self._gaps

    def _add(self, key: tuple[str, str], new: _Group, day: date, num_rows: int) -> None:
        group = self._groups.setdefault(key, new)
        group.num_rows += num_rows
        group.num_files += 1
        group.num_days += day != group.last_day
        group.last_day = day


def _problem(group: _Group, note: Note | None) -> Problem:
    line = group.line
    if group.breach is not None:
        line = breach_line(group.file, group.breach, group.first_row, group.num_rows)
    if group.num_files > 1:
        line += f" (in {group.num_files:,} files of {group.num_days:,} days)"
    key = note.keys.get(group.column) if note is not None and group.column is not None else None
    if key is not None and note is not None:
        line += f"; it was imported by '{key}' of {note.mapping}"
    return Problem(
        line=line,
        column=group.column,
        num_rows=group.num_rows,
        num_files=group.num_files,
        num_days=group.num_days,
        key=key,
    )
