"""What users engaged with before: built day by day from the engagements of each, and never from what came later.

A row at ``ts`` knows the engagements whose time is strictly before ``ts``, the last N of them, most recent first.
Memory is that of the users who ever engaged, N times 9 bytes and 24 more each, and of one day's engagements.

Shape legend: N length of a history, U users so far, E engagements of a day, T users of a day, R rows.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.windows.importing.spilling import DAY_US

Ints = NDArray[np.int64]

_TIME_BITS = 37  # a day has fewer than 2**37 microseconds
_USERS_AT_ONCE = 65_536


class Engagements(NamedTuple):
    """Engagements of one day in any order; arrays (E,).

    Attributes:
        user: Who.
        pin: With what.
        known_at_us: From when on it may be known, microseconds since 1970.
        action: How.
    """

    user: Ints
    pin: Ints
    known_at_us: Ints
    action: NDArray[np.int8]


class Histories:
    """The last engagements of every user, up to the day that is open.

    Args:
        length: N.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._users_U = np.empty(0, np.int64)
        """Ascending."""
        self._slot_U = np.empty(0, np.int64)
        """Row of each in what follows; those are in the order of arrival, and may have room to spare."""
        self._pins_UN = np.empty((0, length), np.int64)
        self._actions_UN = np.empty((0, length), np.int8)
        self._count_U = np.empty(0, np.int64)
        self._day_start_us = 0
        self._day: Engagements | None = None

    def open_day(self, day: int, engagements: Engagements) -> None:
        """Begins a day.

        Args:
            day: Days since 1970; ascending from call to call, with `close_day` between them.
            engagements: Those that become known on it.
        """
        assert self._day is None, "close the day before"
        self._day_start_us = day * DAY_US
        user, pin, known_at_us, action = engagements
        # Equal times are in the order of pins, so that the order of the source does not matter.
        order = np.lexsort((action, pin, known_at_us, user))
        self._day = Engagements(user[order], pin[order], known_at_us[order], action[order])
        self._users_T, self._begin_T = np.unique(self._day.user, return_index=True)
        self._end_T = np.append(self._begin_T[1:], len(order)).astype(np.int64)
        code = np.repeat(np.arange(len(self._users_T)), self._end_T - self._begin_T)
        self._keys_E = self._keys(code, self._day.known_at_us)

    def of(self, user: Ints, ts_us: Ints) -> tuple[pa.ListArray, pa.ListArray]:
        """Histories of rows of the open day: pins, list<int64> (R,), and actions, list<int8> (R,).

        Args:
            user: Whose, (R,).
            ts_us: As of when, (R,); on the open day.
        """
        assert self._day is not None, "open a day first"
        code, engaged = _find(self._users_T, user)
        end = np.searchsorted(self._keys_E, self._keys(code, ts_us)) if len(self._keys_E) else np.zeros_like(code)
        begin = self._begin_T[code] if len(self._begin_T) else np.zeros_like(code)
        today = np.where(engaged, np.minimum(end - begin, self._length), 0)
        index, known = _find(self._users_U, user)
        slot = self._slot_U[index] if len(self._slot_U) else index
        count = self._count_U[slot] if len(self._count_U) else np.zeros_like(slot)
        earlier = np.where(known, np.minimum(count, self._length - today), 0)
        lengths = today + earlier
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        back = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        row = np.repeat(np.arange(len(user)), lengths)
        is_today = back < today[row]
        pins = np.empty(len(row), np.int64)
        actions = np.empty(len(row), np.int8)
        lines = end[row[is_today]] - 1 - back[is_today]
        pins[is_today], actions[is_today] = self._day.pin[lines], self._day.action[lines]
        old = row[~is_today]
        column = back[~is_today] - today[old]
        pins[~is_today] = self._pins_UN[slot[old], column]
        actions[~is_today] = self._actions_UN[slot[old], column]
        ends = pa.array(offsets, pa.int32())
        return pa.ListArray.from_arrays(ends, pa.array(pins)), pa.ListArray.from_arrays(ends, pa.array(actions))

    def close_day(self) -> None:
        """Takes the open day's engagements into what later days know."""
        assert self._day is not None, "open a day first"
        self._make_room()
        slot_T = self._slot_U[np.searchsorted(self._users_U, self._users_T)]
        for first in range(0, len(slot_T), _USERS_AT_ONCE):
            self._take_in(slice(first, first + _USERS_AT_ONCE), slot_T[first : first + _USERS_AT_ONCE])
        self._day = None

    def _take_in(self, users: slice, slot: Ints) -> None:
        """Puts the day's engagements of some users before their earlier ones."""
        assert self._day is not None
        end, begin = self._end_T[users], self._begin_T[users]
        today = np.minimum(end - begin, self._length)
        column_N = np.arange(self._length)
        from_today = column_N < today[:, None]
        lines = np.where(from_today, end[:, None] - 1 - column_N, 0)
        earlier = np.where(from_today, 0, column_N - today[:, None])
        pins, actions = self._pins_UN[slot], self._actions_UN[slot]
        self._pins_UN[slot] = np.where(from_today, self._day.pin[lines], np.take_along_axis(pins, earlier, 1))
        self._actions_UN[slot] = np.where(from_today, self._day.action[lines], np.take_along_axis(actions, earlier, 1))
        self._count_U[slot] = np.minimum(self._count_U[slot] + today, self._length)

    def _make_room(self) -> None:
        """Gives users that engage for the first time a place."""
        _, known = _find(self._users_U, self._users_T)
        new = self._users_T[~known]
        num_users = len(self._users_U) + len(new)
        if num_users > len(self._count_U):
            room = max(num_users, len(self._count_U) * 3 // 2) - len(self._count_U)
            self._pins_UN = np.concatenate([self._pins_UN, np.zeros((room, self._length), np.int64)])
            self._actions_UN = np.concatenate([self._actions_UN, np.zeros((room, self._length), np.int8)])
            self._count_U = np.concatenate([self._count_U, np.zeros(room, np.int64)])
        places = np.searchsorted(self._users_U, new)
        slots = np.arange(len(self._users_U), num_users)
        self._users_U = np.insert(self._users_U, places, new)
        self._slot_U = np.insert(self._slot_U, places, slots)

    def _keys(self, code: Ints, ts_us: Ints) -> Ints:
        """User and time of the open day as one sortable number."""
        return (code << _TIME_BITS) + (ts_us - self._day_start_us)


def _find(ascending: Ints, wanted: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Where each of `wanted` is, and whether; 0 where it is not."""
    if not len(ascending):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    index = np.searchsorted(ascending, wanted).clip(max=len(ascending) - 1)
    found = ascending[index] == wanted
    return np.where(found, index, 0), found
