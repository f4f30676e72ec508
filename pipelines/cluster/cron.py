"""A recipe's schedule as Kubeflow Pipelines takes it: six fields, in the time zone of its controller.

That zone is one for a whole installation (``cronScheduleTimezone``); it is UTC unless someone changed it, and the API
does not tell it. So hours are turned into UTC here. In a zone that changes its clocks they hold until it does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainer.errors import InputError
from trainer.recipe import ScheduleConfig

_LOOK_AHEAD_DAYS = 366
_DAYS_OF_WEEK = 7


@dataclass(frozen=True, kw_only=True)
class UtcCron:
    """A schedule in UTC.

    Attributes:
        text: Second, minute, hour, day of month, month and day of week.
        holds_until: The first day on which the zone's clocks are others; None when they stay.
    """

    text: str
    holds_until: date | None


def to_utc(schedule: ScheduleConfig, today: date) -> UtcCron:
    """The schedule in UTC, as the zone's clocks are today.

    Raises:
        InputError: The zone is not known here.
    """
    if schedule.time_zone == "UTC":
        return UtcCron(text=f"0 {schedule.cron}", holds_until=None)
    zone = _zone(schedule.time_zone)
    minute, hour, day, month, weekdays = schedule.cron.split()
    local = datetime.combine(today, time(int(hour), int(minute)), zone)
    utc = local.astimezone(UTC)
    shifted = _shifted(weekdays, (utc.date() - local.date()).days)
    return UtcCron(text=f"0 {utc.minute} {utc.hour} {day} {month} {shifted}", holds_until=_next_change(local))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise InputError(
            f"schedule.time_zone '{name}': not a zone that this machine knows; mend it, or install its tzdata"
        ) from None


def _shifted(weekdays: str, num_days: int) -> str:
    """Days of the week, moved: 01:00 on a Monday in Tokyo is on a Sunday in UTC."""
    if weekdays == "*" or not num_days:
        return weekdays
    return ",".join(str(day) for day in sorted({(day + num_days) % _DAYS_OF_WEEK for day in _expand(weekdays)}))


def _expand(weekdays: str) -> Iterator[int]:
    for entry in weekdays.split(","):
        span, _, step = entry.partition("/")
        low, _, high = ("0-6" if span == "*" else span).partition("-")
        # As cron has it, a number with a step begins an open range.
        last = int(high) if high else (_DAYS_OF_WEEK - 1 if step else int(low))
        yield from range(int(low), last + 1, int(step or 1))


def _next_change(local: datetime) -> date | None:
    for num_days in range(1, _LOOK_AHEAD_DAYS):
        # Wall-clock arithmetic: the same time of day on a later day.
        later = local + timedelta(days=num_days)
        if later.utcoffset() != local.utcoffset():
            return later.date()
    return None
