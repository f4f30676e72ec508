"""Labels from engagements that are records of their own: each belongs to the last impression before it with its key.

Days are joined in order. Memory is the keys of as many days of impressions as an engagement may come late by, and one
more: 32 bytes a row, and as much again while they are sorted.

Shape legend: I impressions of the days that are held, E events of a day.
"""

from collections import defaultdict
from math import ceil

import numpy as np
from numpy.typing import NDArray

from trainer.windows.importing.spilling import DAY_US, Scratch

Ints = NDArray[np.int64]


class Joiner:
    """Finds the impression of each engagement.

    Args:
        scratch: Holds ``keys`` of impressions and ``events``, each with `key` and ``ts``, and events with ``bits``.
        key: Columns that an impression and its engagements share.
        within_us: Longest time between them, microseconds.
    """

    def __init__(self, scratch: Scratch, key: tuple[str, str], within_us: int) -> None:
        self._scratch, self._key, self._within_us = scratch, key, within_us
        self._num_days_late = ceil(within_us / DAY_US)
        self._event_days = scratch.days("events")
        self._held: dict[int, list[Ints]] = {}
        self._found: dict[int, list[tuple[Ints, Ints]]] = defaultdict(list)
        self.num_events = self.num_joined = 0

    def bits_of(self, day: int, num_rows: int) -> Ints:
        """Labels of a day's impressions in the order of their ``keys``, one bit each: (num_rows,); ask by day."""
        while self._event_days and self._event_days[0] <= day + self._num_days_late:
            self._join(self._event_days.pop(0))
        bits = np.zeros(num_rows, np.int64)
        for rows, found in self._found.pop(day, []):
            np.bitwise_or.at(bits, rows, found)
        return bits

    def _join(self, event_day: int) -> None:
        events = [column.astype(np.int64) for column in self._scratch.columns("events", event_day, (*self._key, "ts"))]
        (bits,) = self._scratch.columns("events", event_day, ("bits",))
        self._scratch.drop("events", event_day)
        days = range(event_day - self._num_days_late, event_day + 1)
        self._held = {day: self._held.get(day) or self._impressions(day) for day in days}
        num_rows = [len(columns[0]) for columns in self._held.values()]
        day_I = np.repeat(np.array(list(days), np.int64), num_rows)
        row_I = np.concatenate([np.arange(number) for number in num_rows])
        impressions = [np.concatenate(columns) for columns in zip(*self._held.values(), strict=True)]
        index = _last_before(impressions, events)
        found = index >= 0
        found[found] &= events[2][found] - impressions[2][index[found]] <= self._within_us
        self.num_events += len(found)
        self.num_joined += int(found.sum())
        for day in days:
            rows = found & (day_I[index] == day) if len(day_I) else found
            if rows.any():
                self._found[day].append((row_I[index[rows]], bits[rows].astype(np.int64)))

    def _impressions(self, day: int) -> list[Ints]:
        return [column.astype(np.int64) for column in self._scratch.columns("keys", day, (*self._key, "ts"))]


def _last_before(impressions: list[Ints], events: list[Ints]) -> Ints:
    """For each event the last impression of its key that is not after it, (E,); -1 where there is none.

    Args:
        impressions: Two columns of the key and one of times, (I,) each; of equal ones the last counts.
        events: The same, (E,).
    """
    num_impressions = len(impressions[0])
    one, two, ts = (np.concatenate(pair) for pair in zip(impressions, events, strict=True))
    is_event = np.arange(len(ts)) >= num_impressions
    order = np.lexsort((is_event, ts, two, one))
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (one[order[1:]] != one[order[:-1]]) | (two[order[1:]] != two[order[:-1]])
    place = np.arange(len(order))
    group = np.maximum.accumulate(np.where(starts, place, 0))
    last = np.maximum.accumulate(np.where(is_event[order], -1, place))
    of_event = np.flatnonzero(is_event[order])
    found = np.full(len(ts) - num_impressions, -1, np.int64)
    is_of_key = last[of_event] >= group[of_event]
    found[order[of_event[is_of_key]] - num_impressions] = order[last[of_event[is_of_key]]]
    return found
