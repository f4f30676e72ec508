"""The days of a window as the checks see them: a profile each, and what preparation dropped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from trainer.recipe import LogsConfig
from trainer.windows.quality.distinct import sorted_union
from trainer.windows.quality.profile import DayProfile


@dataclass(frozen=True, kw_only=True)
class DayFacts:
    """One day.

    Attributes:
        day: The UTC day.
        num_slates: Slates.
        num_raw_rows: Rows that the raw files hold.
        num_duplicates: Raw rows dropped because a newer one has their request and pin.
        num_quarantined: Raw rows put into quarantine.
        profile: Of the rows that were kept.
    """

    day: date
    num_slates: int
    num_raw_rows: int
    num_duplicates: int
    num_quarantined: int
    profile: DayProfile

    @property
    def duplicate_share(self) -> float:
        """Share of the raw rows."""
        return self.num_duplicates / max(1, self.num_raw_rows)

    @property
    def quarantine_share(self) -> float:
        """Share of the raw rows."""
        return self.num_quarantined / max(1, self.num_raw_rows)

    def label_rate(self, label: str) -> float:
        """Share of the kept rows on which it is true."""
        return self.profile.num_positive[label] / max(1, self.profile.num_rows)

    def null_share(self, column: str) -> float:
        """Share of the kept rows in which the column is null; none where the day has no such column."""
        return self.profile.num_nulls.get(column, 0) / max(1, self.profile.num_rows)


def merged(logs: LogsConfig, days: Sequence[DayFacts]) -> DayProfile:
    """The days' profiles added up."""
    whole = DayProfile(logs)
    for facts in days:
        whole.merge(facts.profile)
    return whole


def new_pin_shares(days: Sequence[DayFacts]) -> Iterator[float | None]:
    """For each day, the share of its pins that no day before it showed; None for the first.

    Exact while no day has more pins than its sample keeps; beyond that, exact for a sample of the pins.

    Args:
        days: Oldest first.
    """
    reach = min((facts.profile.pins.reach for facts in days), default=np.uint64(0))
    seen = np.empty(0, np.uint64)
    for number, facts in enumerate(days):
        sample = facts.profile.pins.hashes_K
        sample = sample[sample <= reach]
        is_new = ~np.isin(sample, seen, assume_unique=True)
        yield float(is_new.mean()) if number and len(sample) else None
        seen = sorted_union(seen, sample)
