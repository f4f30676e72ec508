"""The checks: one day of a window against the days before it.

Each compares a number with what the trailing days have, within a limit from the recipe's section `quality`. Where days
differ a good deal from each other anyway, the limit is as wide as that. What is usual is a median, and how much it
varies the median absolute deviation, times 1.4826 to read as a standard deviation: an odd day among the trailing ones
hides no other. What the same day of the week before had is usual too, for Mondays may be unlike all other days.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trainer.recipe import LogsConfig, QualityConfig
from trainer.windows.quality.days import DayFacts, merged
from trainer.windows.quality.drift import Shift, psi_by_chance, shift_of
from trainer.windows.quality.findings import Finding, Level
from trainer.windows.quality.histograms import Histograms
from trainer.windows.quality.profile import NUM_HOURS, DayProfile

_MAD_TO_DEVIATION = 1.4826
_SLATES_AN_HOUR = 10
"""An hour with fewer slates than this on a usual day may be empty by chance."""

_FLOAT32_ROUNDING = 1e-6
_WEEK = 7


class _Limits(NamedTuple):
    """What is usual, and how far from it a value may be on either side."""

    usual: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """A day and the days before it.

    Attributes:
        logs: The log's shape.
        config: The recipe's limits.
        day: The day that is checked.
        trailing: The days before it, oldest first; one at least.
        new_pin_share: Share of the day's pins that no trailing day showed.
        usual_new_pin_shares: The same for earlier days that had at least half as many days before them.
    """

    logs: LogsConfig
    config: QualityConfig
    day: DayFacts
    trailing: Sequence[DayFacts]
    new_pin_share: float | None = None
    usual_new_pin_shares: Sequence[float] = ()

    @cached_property
    def usual(self) -> DayProfile:
        """The trailing days' profiles added up."""
        return merged(self.logs, self.trailing)

    def columns(self) -> Iterator["_Column"]:
        """Every number that both have."""
        for name, found in self.day.profile.values.items():
            usual = self.usual.values.get(name)
            if usual is not None and len(usual.sums_F) == len(found.sums_F):
                earlier = [facts.profile.values[name] for facts in self.trailing if name in facts.profile.values]
                for number in range(len(found.sums_F)):
                    label = f"{name}[{number}]" if name.endswith("_features") else name
                    yield _Column(label, number, found, usual, earlier)


class _Column(NamedTuple):
    """One number of a row.

    Attributes:
        name: Its name for people.
        number: Which column of the histograms it is.
        found: The day's.
        usual: The trailing days' added up.
        earlier: Each trailing day's.
    """

    name: str
    number: int
    found: Histograms
    usual: Histograms
    earlier: Sequence[Histograms]

    def shift(self, day: Histograms) -> Shift:
        """How far a day is from the trailing days together."""
        return shift_of(self.usual.counts_FB[self.number], day.counts_FB[self.number])


def check_day(compared: Comparison) -> list[Finding]:
    """All findings on one day, those that are in order among them.

    Args:
        compared: The day and the days before it.
    """
    return [
        *_schema(compared),
        *_volume(compared),
        *_empty_hours(compared),
        *_labels(compared),
        *_nulls(compared),
        *_duplicates(compared),
        *_quarantine(compared),
        *_new_pins(compared),
        *_ranges(compared),
        *_drift(compared),
    ]


def _schema(compared: Comparison) -> Iterator[Finding]:
    found, usual = compared.day.profile.raw_columns, compared.usual.raw_columns
    changes = {}
    for name in sorted({*found, *usual}):
        before, now = usual.get(name, []), found.get(name, [])
        if not before:
            changes[name] = f"column '{name}' is new; no trailing day has it"
        elif not now and "missing" not in before:
            changes[name] = f"column '{name}' is gone; the trailing days have it"
        elif "missing" in now and "missing" not in before:
            changes[name] = f"column '{name}' is missing in some files of the day"
        elif now and not set(now) <= set(before):
            changes[name] = f"column '{name}' is {' and '.join(now)}, usually {' or '.join(before)}"
    for name, message in changes.items():
        yield _finding(compared, "schema", name, 1, None, 0, message)
    if not changes:
        yield _finding(compared, "schema", "", 0, None, 0, "the columns of the trailing days")


def _volume(compared: Comparison) -> Iterator[Finding]:
    rows, ratio = compared.day.profile.num_rows, compared.config.max_volume_ratio
    # Logarithms, for a half is as far off as a double.
    earlier = [math.log(max(1, facts.profile.num_rows)) for facts in compared.trailing]
    limits = _limits(compared, earlier, lambda _: math.log(ratio))
    usual, low, high = (math.exp(limit) for limit in limits)
    is_above = rows >= usual
    limit = high if is_above else low
    message = f"{rows:,} rows, usually {usual:,.0f} (limit {limit:,.0f})"
    yield _finding(compared, "volume", "", rows, usual, limit, message, is_above=is_above)


def _empty_hours(compared: Comparison) -> Iterator[Finding]:
    hours_TH = np.array([facts.profile.rows_by_hour for facts in compared.trailing])
    rows_a_slate = compared.usual.num_rows / max(1, sum(facts.num_slates for facts in compared.trailing))
    is_expected = (hours_TH.min(axis=0) > 0) & (np.median(hours_TH, axis=0) >= _SLATES_AN_HOUR * rows_a_slate)
    empty = np.flatnonzero(is_expected & (compared.day.profile.rows_by_hour == 0))
    names = ", ".join(f"{hour:02d}" for hour in empty)
    message = (
        f"no rows in {len(empty)} of {NUM_HOURS} hours (UTC: {names})" if len(empty) else "rows in every usual hour"
    )
    yield _finding(compared, "empty_hours", "ts", len(empty), 0, compared.config.max_empty_hours, message)


def _labels(compared: Comparison) -> Iterator[Finding]:
    config, num_slates = compared.config, compared.day.num_slates

    def slack(rate: float) -> float:
        # Rows of one slate hang together, so slates count as observations: rather too few than too many.
        return max(config.max_label_change * rate, config.max_z * _sampling_error(rate, num_slates))

    for label in compared.logs.labels:
        limits = _limits(compared, [facts.label_rate(label) for facts in compared.trailing], slack)
        yield _within(compared, limits, "label_rate", label, compared.day.label_rate(label), f"of rows have {label}")


def _nulls(compared: Comparison) -> Iterator[Finding]:
    for name in sorted(compared.day.profile.num_nulls):
        share = compared.day.null_share(name)
        usual, _ = _middle([facts.null_share(name) for facts in compared.trailing])
        yield _increase(compared, "nulls", name, share, usual, compared.config.max_null_increase, f"{name} is null in")


def _duplicates(compared: Comparison) -> Iterator[Finding]:
    usual, _ = _middle([facts.duplicate_share for facts in compared.trailing])
    share, most = compared.day.duplicate_share, compared.config.max_duplicate_increase
    yield _increase(compared, "duplicates", "", share, usual, most, "duplicates are")


def _quarantine(compared: Comparison) -> Iterator[Finding]:
    usual, _ = _middle([facts.quarantine_share for facts in compared.trailing])
    share, most = compared.day.quarantine_share, compared.config.max_quarantine_increase
    yield _increase(compared, "quarantine", "", share, usual, most, "quarantined are")


def _increase(
    compared: Comparison, check: str, column: str, share: float, usual: float, most: float, what: str
) -> Finding:
    message = f"{what} {share:.2%} of the rows, usually {usual:.2%} (limit {usual + most:.2%})"
    return _finding(compared, check, column, share, usual, usual + most, message)


def _new_pins(compared: Comparison) -> Iterator[Finding]:
    share, config = compared.new_pin_share, compared.config
    if share is None or len(compared.usual_new_pin_shares) < config.min_trailing_days:
        return
    num_pins = len(compared.day.profile.pins.hashes_K)

    def slack(share: float) -> float:
        return max(config.max_new_pin_change, config.max_z * _sampling_error(share, num_pins))

    limits = _limits(compared, compared.usual_new_pin_shares, slack)
    yield _within(compared, limits, "new_pins", "pin_id", share, "of the pins are new to the window")


def _ranges(compared: Comparison) -> Iterator[Finding]:
    for column in compared.columns():
        name, number, found, usual, _ = column
        low, high = usual.lows_F[number], usual.highs_F[number]
        slack = compared.config.max_range_growth * (high - low)
        below, above = low - found.lows_F[number], found.highs_F[number] - high
        is_above = bool(above >= below)
        value, limit = (found.highs_F[number], high + slack) if is_above else (found.lows_F[number], low - slack)
        message = f"{name} has a value of {value:.6g}, usually {low:.6g} to {high:.6g} (limit {limit:.6g})"
        yield _finding(compared, "range", name, value, high if is_above else low, limit, message, is_above=is_above)


def _drift(compared: Comparison) -> Iterator[Finding]:
    num_usual = sum(facts.num_slates for facts in compared.trailing)
    by_chance = psi_by_chance(max(1, num_usual), max(1, compared.day.num_slates))
    for column in compared.columns():
        # Each day has other users, and few of them in a small log: days are that far from their own average anyway.
        usual, deviation = _middle([column.shift(day).psi for day in column.earlier])
        most = max(compared.config.max_psi, by_chance, usual + compared.config.max_z * deviation)
        psi = column.shift(column.found).psi
        message = f"{column.name} has drifted: its population stability index is {psi:.3f}, usually {usual:.3f} "
        yield _finding(compared, "drift", column.name, psi, usual, most, f"{message}(limit {most:.3f})")
        if psi <= most:  # what drifts is told once
            yield _mean(compared, column)


def _mean(compared: Comparison, column: _Column) -> Finding:
    found, _ = column.found.moments(column.number)
    pooled, deviation = column.usual.moments(column.number)
    sampling = compared.config.max_z * deviation / math.sqrt(max(1, compared.day.num_slates))
    slack = max(compared.config.max_mean_shift * deviation, sampling, _FLOAT32_ROUNDING * abs(pooled))
    limits = _limits(compared, [day.moments(column.number)[0] for day in column.earlier], lambda _: slack)
    is_above = found >= limits.usual
    limit = limits.high if is_above else limits.low
    message = f"{column.name} has a mean of {found:.6g}, usually {limits.usual:.6g} (limit {limit:.6g})"
    return _finding(compared, "mean", column.name, found, limits.usual, limit, message, is_above=is_above)


def _limits(compared: Comparison, earlier: Sequence[float], slack: Callable[[float], float]) -> _Limits:
    """What a day may have: near what is usual, or near what the same day of the week before had.

    Args:
        compared: The day.
        earlier: What the days before it have, the day before it last.
        slack: How far off a value may be from a given one.
    """
    usual, deviation = _middle(earlier)
    away = max(slack(usual), compared.config.max_z * deviation)
    spans = [(usual - away, usual + away)]
    if len(earlier) >= _WEEK:
        week_before = earlier[-_WEEK]
        spans.append((week_before - slack(week_before), week_before + slack(week_before)))
    lows, highs = zip(*spans, strict=True)
    return _Limits(usual, min(lows), max(highs))


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """The median and the robust standard deviation about it."""
    median = float(np.median(values))
    return median, _MAD_TO_DEVIATION * float(np.median(np.abs(np.asarray(values) - median)))


def _sampling_error(share: float, num_observed: int) -> float:
    return float(np.sqrt(share * (1 - share) / max(1, num_observed)))


def _within(compared: Comparison, limits: _Limits, check: str, column: str, share: float, what: str) -> Finding:
    is_above = share >= limits.usual
    limit = limits.high if is_above else max(0.0, limits.low)
    message = f"{share:.2%} {what}, usually {limits.usual:.2%} (limit {limit:.2%})"
    return _finding(compared, check, column, share, limits.usual, limit, message, is_above=is_above)


def _finding(
    compared: Comparison,
    check: str,
    column: str,
    value: float,
    usual: float | None,
    threshold: float,
    message: str,
    *,
    is_above: bool = True,
) -> Finding:
    is_breach = value > threshold if is_above else value < threshold
    level: Level = compared.config.on_breach if is_breach else "ok"
    return Finding(
        check=check,
        day=compared.day.day,
        column=column,
        value=float(value),
        usual=None if usual is None else float(usual),
        threshold=float(threshold),
        level=level,
        message=message,
    )
