"""Holds a log against its contract, day by day, and collects everything that is wrong with it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

from trainer.errors import InputError
from trainer.recipe import LogsConfig
from trainer.windows.logs import list_days
from trainer.windows.reading import inspect_day

MAX_PROBLEMS = 100


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
class LogsReport:
    """What `check_logs` found.

    Attributes:
        uri: The log.
        days: The days that obey the contract, oldest first.
        problems: One line each, the first 100 of them.
        num_problems: All of them.
    """

    uri: str
    days: tuple[DaySummary, ...]
    problems: tuple[str, ...]
    num_problems: int

    @property
    def is_sound(self) -> bool:
        """No problem was found."""
        return self.num_problems == 0

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values; days are ``YYYY-MM-DD``."""
        days = [{**asdict(summary), "day": summary.day.isoformat()} for summary in self.days]
        return {**asdict(self), "days": days, "problems": list(self.problems), "is_sound": self.is_sound}


def check_logs(logs: LogsConfig, first: date | None = None, last: date | None = None) -> LogsReport:
    """Reads every day of a span and reports on it; a gap between days is a problem too.

    Args:
        logs: Where the log lies, and its shape.
        first: First day to read; the log's oldest when None.
        last: Last day to read; the log's newest when None.

    Raises:
        InputError: The log holds no day at all, or none in the span.
    """
    known = list_days(logs.uri)
    if not known:
        raise InputError(f"{logs.uri}: holds no dt=YYYY-MM-DD/*.parquet; name the folder above the days")
    first, last = first or known[0], last or known[-1]
    if not any(first <= day <= last for day in known):
        raise InputError(f"{logs.uri}: no day from {first} to {last}; it holds {known[0]} to {known[-1]}")
    summaries: list[DaySummary] = []
    problems: list[str] = []
    for found in (_check_day(logs, day) for day in _span(first, last)):
        if isinstance(found, DaySummary):
            summaries.append(found)
        else:
            problems.extend(found)
    return LogsReport(
        uri=logs.uri, days=tuple(summaries), problems=tuple(problems[:MAX_PROBLEMS]), num_problems=len(problems)
    )


def _span(first: date, last: date) -> Iterator[date]:
    return (first + timedelta(days=offset) for offset in range((last - first).days + 1))


def _check_day(logs: LogsConfig, day: date) -> DaySummary | tuple[str, ...]:
    try:
        reading = inspect_day(logs, day)
    except InputError as error:
        return (str(error),)
    if reading.problems:
        return reading.problems
    return DaySummary(
        day=day,
        num_rows=reading.num_rows,
        num_slates=reading.num_slates,
        num_duplicates=reading.num_duplicates,
        label_rates={label: count / reading.num_rows for label, count in reading.num_positive.items()},
    )
