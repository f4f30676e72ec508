"""What an import gave, counted while days are written.

Memory is that of the distinct users and pins, 16 bytes each.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trainer.windows.importing.tally import Tally


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Rows that were left out for one reason: how many, and the first of them."""

    num_rows: int
    first: str


@dataclass(frozen=True, kw_only=True)
class ImportSummary:
    """What an import gave.

    Attributes:
        days: Rows of each UTC day that has any, by ``YYYY-MM-DD``, oldest first.
        gaps: Days between the first and the last that have none.
        num_rows: Impressions.
        num_dropped: Records that were left out.
        dropped: Why; a record may have several reasons.
        label_rates: Share of rows, by label.
        num_users: Distinct users.
        num_pins: Distinct pins that were shown.
        mean_history: Pins of a history, on average.
        empty_history_share: Rows without any.
        num_engagements: Engagements that were records of their own.
        num_joined: Those of them that an impression was found for.
        num_bytes: Size of the source's files.
        duration_s: What it took.
    """

    days: dict[str, int]
    gaps: tuple[str, ...]
    num_rows: int
    num_dropped: int
    dropped: tuple[Dropped, ...]
    label_rates: dict[str, float]
    num_users: int
    num_pins: int
    mean_history: float
    empty_history_share: float
    num_engagements: int
    num_joined: int
    num_bytes: int
    duration_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


class Totals:
    """Counts rows of the log.

    Args:
        labels: Names of the labels.
    """

    def __init__(self, labels: tuple[str, ...]) -> None:
        self._labels = dict.fromkeys(labels, 0)
        self._days: Counter[date] = Counter()
        self._users, self._pins = _Distinct(), _Distinct()
        self._num_past = self._num_without_past = 0
        self._num_events = self._num_joined = 0

    def take(self, day: date, table: pa.Table) -> None:
        """Counts rows of a day."""
        self._days[day] += table.num_rows
        self._users.take(table["user_id"])
        self._pins.take(table["pin_id"])
        for label in self._labels:
            self._labels[label] += pc.sum(table[label]).as_py() or 0
        lengths = pc.list_value_length(table["history"])
        self._num_past += pc.sum(lengths).as_py() or 0
        self._num_without_past += pc.sum(pc.equal(lengths, 0)).as_py() or 0

    def take_joined(self, num_events: int, num_joined: int) -> None:
        """Takes note of how many engagements found their impression."""
        self._num_events, self._num_joined = num_events, num_joined

    def summary(self, tally: Tally, num_bytes: int, duration_s: float) -> ImportSummary:
        """The counts of the whole import; there is at least one row."""
        num_rows = self._days.total()
        first, last = min(self._days), max(self._days)
        span = (first + timedelta(days=offset) for offset in range((last - first).days))
        reasons = sorted(tally.reasons.values(), key=lambda counted: -counted.num_rows)
        return ImportSummary(
            days={day.isoformat(): self._days[day] for day in sorted(self._days)},
            gaps=tuple(day.isoformat() for day in span if day not in self._days),
            num_rows=num_rows,
            num_dropped=tally.num_bad_rows,
            dropped=tuple(Dropped(num_rows=each.num_rows, first=f"{each.place}: {each.what}") for each in reasons),
            label_rates={label: number / num_rows for label, number in self._labels.items()},
            num_users=self._users.count(),
            num_pins=self._pins.count(),
            mean_history=self._num_past / num_rows,
            empty_history_share=self._num_without_past / num_rows,
            num_engagements=self._num_events,
            num_joined=self._num_joined,
            num_bytes=num_bytes,
            duration_s=duration_s,
        )


class _Distinct:
    """A set of ids; new ones wait until they are as many as the known ones, so that merging stays cheap."""

    def __init__(self) -> None:
        self._known = np.empty(0, np.int64)
        self._waiting: list[NDArray[np.int64]] = []
        self._num_waiting = 0

    def take(self, ids: pa.ChunkedArray) -> None:
        found = np.asarray(pc.unique(ids).to_numpy(), np.int64)
        self._waiting.append(found)
        self._num_waiting += len(found)
        if self._num_waiting > max(len(self._known), 1 << 20):
            self._merge()

    def count(self) -> int:
        self._merge()
        return len(self._known)

    def _merge(self) -> None:
        ordered = np.sort(np.concatenate([self._known, *self._waiting]))
        self._known = ordered[np.diff(ordered, prepend=-1) != 0]
        self._waiting, self._num_waiting = [], 0
