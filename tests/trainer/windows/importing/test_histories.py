from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.windows.importing.histories import Engagements, Histories
from trainer.windows.importing.spilling import DAY_US

EVENTS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 6), st.integers(0, 9), st.integers(0, 2)),
    max_size=40,
)
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 7)), max_size=30)

Event = tuple[int, int, int, int, int]


def naive(events: list[Event], user: int, ts_us: int, length: int) -> list[tuple[int, int]]:
    """All that the user did strictly before, the last first; of equal times the larger pin, then the larger action."""
    before = [
        (day * DAY_US + time, pin, action)
        for its_user, day, time, pin, action in events
        if its_user == user and day * DAY_US + time < ts_us
    ]
    return [(pin, action) for _, pin, action in sorted(before, reverse=True)[:length]]


@settings(deadline=None)
@given(EVENTS, ROWS, st.integers(1, 4))
def test_histories_are_those_of_a_naive_oracle(
    events: list[Event], rows: list[tuple[int, int, int]], length: int
) -> None:
    histories = Histories(length)
    for day in range(4):
        of_day = np.array([event for event in events if event[1] == day], np.int64).reshape(-1, 5).T
        users, _, time, pin, action = of_day
        histories.open_day(day, Engagements(users, pin, day * DAY_US + time, action.astype(np.int8)))
        asked = [(user, day * DAY_US + time) for user, its_day, time in rows if its_day == day]
        pins, actions = histories.of(
            np.array([user for user, _ in asked], np.int64), np.array([ts_us for _, ts_us in asked], np.int64)
        )
        for index, (user, ts_us) in enumerate(asked):
            wanted = naive(events, user, ts_us, length)
            found = list(zip(pins[index].as_py(), actions[index].as_py(), strict=True))
            assert found == wanted
        histories.close_day()


def test_days_may_be_skipped_and_users_keep_arriving() -> None:
    histories = Histories(2)
    state: dict[int, list[int]] = defaultdict(list)
    for day in range(0, 60, 7):
        users = np.arange(day, day + 40)[::-1].copy()
        histories.open_day(day, Engagements(users, users + day, np.full(40, day * DAY_US), np.ones(40, np.int8)))
        asked = np.arange(100)
        pins, _ = histories.of(asked, np.full(100, day * DAY_US))
        assert pins.to_pylist() == [state[user][::-1][:2] for user in asked.tolist()]
        histories.close_day()
        for user in users.tolist():
            state[user].append(user + day)
