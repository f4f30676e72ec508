"""What a check found on one day: in numbers for machines, in one line for people."""

from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Literal

Level = Literal["ok", "warn", "stop"]
LEVELS: tuple[Level, ...] = ("ok", "warn", "stop")
"""From harmless to grave."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check of one day, and of one column where it is about one.

    Attributes:
        check: Name of the check, see docs/data-checks.md.
        day: The UTC day.
        column: The column, such as ``pin_features[3]``; empty for the day as a whole.
        value: What was found.
        usual: What the trailing days have; None where that is no one number.
        threshold: The limit on the value's side.
        level: ``ok`` within the limit, beyond it what the recipe makes of a breach.
        message: One line: what is odd, beside what is usual.
    """

    check: str
    day: date
    column: str
    value: float
    usual: float | None
    threshold: float
    level: Level
    message: str

    @property
    def line(self) -> str:
        """The day and what is odd about it."""
        return f"{self.day}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**asdict(self), "day": self.day.isoformat()}


def worst(findings: list[Finding]) -> Level:
    """The gravest level among them; ``ok`` when there are none."""
    return LEVELS[max((LEVELS.index(finding.level) for finding in findings), default=0)]
