"""The verdict on a window: its newest days held against the days before them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainer.recipe import LogsConfig, Recipe
from trainer.windows.quality.checks import Comparison, check_day
from trainer.windows.quality.days import DayFacts, new_pin_shares
from trainer.windows.quality.findings import Finding, Level, worst


@dataclass(frozen=True, kw_only=True)
class QualityReport:
    """What the checks of a window came to.

    Attributes:
        recipe: Name of the recipe.
        verdict: The gravest level of all findings.
        findings: All of them, day by day, those that are in order among them.
        judged: The days that were checked, ``YYYY-MM-DD``.
        unjudged: Those that should have been, and have too few days before them.
        days: One object a day of the window, for plots and tables.
        shifts: One object a checked day and column, with shares by group, for plots and tables.
        config: The limits.
    """

    recipe: str
    verdict: Level
    findings: tuple[Finding, ...]
    judged: tuple[str, ...]
    unjudged: tuple[str, ...]
    days: tuple[dict[str, Any], ...]
    shifts: tuple[dict[str, Any], ...]
    config: dict[str, Any]

    @property
    def breaches(self) -> tuple[Finding, ...]:
        """The findings that are not in order."""
        return tuple(finding for finding in self.findings if finding.level != "ok")

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            **{name: value for name, value in vars(self).items() if name != "findings"},
            "num_breaches": len(self.breaches),
            "findings": [finding.to_json() for finding in self.findings],
        }


def judge(recipe: Recipe, days: Sequence[DayFacts]) -> QualityReport:
    """Checks the newest days.

    Args:
        recipe: The shape of its logs, and the limits.
        days: All days of the window, oldest first, the held-out day the last.
    """
    config, shares = recipe.quality, list(new_pin_shares(days))
    first_checked = max(0, len(days) - config.num_days)
    first_judged = max(first_checked, config.min_trailing_days)
    compared = [_compare(recipe, days, shares, number) for number in range(first_judged, len(days))]
    findings = [finding for comparison in compared for finding in check_day(comparison)]
    return QualityReport(
        recipe=recipe.name,
        verdict=worst(findings),
        findings=tuple(findings),
        judged=tuple(comparison.day.day.isoformat() for comparison in compared),
        unjudged=tuple(facts.day.isoformat() for facts in days[first_checked:first_judged]),
        days=tuple(_day(recipe.logs, facts, share) for facts, share in zip(days, shares, strict=True)),
        shifts=tuple(shift for comparison in compared for shift in _shifts(comparison)),
        config=asdict(config),
    )


def _compare(recipe: Recipe, days: Sequence[DayFacts], shares: Sequence[float | None], number: int) -> Comparison:
    # A share falls with the days that came before, so those of the window's first days say nothing about its last.
    earlier = shares[max(1, (number + 1) // 2) : number]
    return Comparison(
        logs=recipe.logs,
        config=recipe.quality,
        day=days[number],
        trailing=days[:number],
        new_pin_share=shares[number],
        usual_new_pin_shares=[share for share in earlier if share is not None],
    )


def _day(logs: LogsConfig, facts: DayFacts, new_pin_share: float | None) -> dict[str, Any]:
    return {
        "day": facts.day.isoformat(),
        "rows": facts.profile.num_rows,
        "slates": facts.num_slates,
        "users": facts.profile.users.num_distinct,
        "pins": facts.profile.pins.num_distinct,
        "new_pin_share": new_pin_share,
        "duplicate_share": facts.duplicate_share,
        "quarantine_share": facts.quarantine_share,
        "label_rates": {label: facts.label_rate(label) for label in logs.labels},
        "rows_by_hour": facts.profile.rows_by_hour.tolist(),
    }


def _shifts(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for column in comparison.columns():
        number, found, usual = column.number, column.found, column.usual
        (mean, deviation), (usual_mean, usual_deviation) = found.moments(number), usual.moments(number)
        yield {
            "day": comparison.day.day.isoformat(),
            "column": column.name,
            **asdict(column.shift(found)),
            "mean": mean,
            "deviation": deviation,
            "low": float(found.lows_F[number]),
            "high": float(found.highs_F[number]),
            "usual_mean": usual_mean,
            "usual_deviation": usual_deviation,
            "usual_low": float(usual.lows_F[number]),
            "usual_high": float(usual.highs_F[number]),
        }
