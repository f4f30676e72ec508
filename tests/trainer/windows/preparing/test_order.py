"""Which rows stay and in which order, against the same told row by row in plain Python."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.windows.mixing import mix64
from trainer.windows.preparing import order
from trainer.windows.preparing.order import Keys, select, slate_words

Row = tuple[int, int, int, int, bool]
"""Request, pin, ts, position, whether a label is true."""

SMALL = st.integers(0, 3)
ROWS = st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL, st.booleans()), max_size=40)
BIG = st.integers(0, 2**63 - 1)
WIDE_ROWS = st.lists(st.tuples(BIG, BIG, BIG, st.integers(0, 2**15 - 1), st.booleans()), max_size=20)


def keys_of(rows: Sequence[Row]) -> Keys:
    columns = [np.array([row[place] for row in rows], np.int64) for place in range(4)]
    return Keys(
        request_N=columns[0],
        pin_N=columns[1],
        ts_N=columns[2],
        position_N=columns[3].astype(np.int16),
        is_positive_N=np.array([row[4] for row in rows], np.bool_),
    )


def word(number: int) -> int:
    return int(mix64(np.array([number % 2**64], np.uint64))[0])


def naive(rows: Sequence[Row], seed: int) -> list[int]:
    """The rows that stay, in order, all negatives kept: the whole day at once, as it was first prepared."""
    newest: dict[tuple[int, int], int] = {}
    for number, (request, pin, ts, _, _) in enumerate(rows):
        known = newest.get((request, pin))
        if known is None or rows[known][2] <= ts:
            newest[request, pin] = number

    def place(number: int) -> tuple[int, int, int]:
        request, pin, _, position, _ = rows[number]
        return word(request + word(seed)), position, pin

    return sorted(newest.values(), key=place)


@settings(deadline=None)
@given(ROWS | WIDE_ROWS, st.integers(0, 5))
def test_the_newest_rows_in_the_order_of_the_slates(rows: list[Row], seed: int) -> None:
    found = select(keys_of(rows), seed, 1.0)
    assert found.rows_N.tolist() == naive(rows, seed)
    assert found.is_sampled_N.all()
    assert found.num_slates == len({row[0] for row in rows})


@settings(deadline=None)
@given(ROWS)
def test_slates_that_share_the_bits_of_a_sort_key_are_told_apart(rows: list[Row]) -> None:
    wanted = naive(rows, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "_POSITION_BITS", 62)  # leaves two bits for the slate
        assert select(keys_of(rows), 0, 1.0).rows_N.tolist() == wanted


@settings(deadline=None)
@given(ROWS, st.sampled_from([0.1, 0.5, 0.9]))
def test_sampling_keeps_positives_and_depends_on_slate_and_pin_alone(rows: list[Row], rate: float) -> None:
    found = select(keys_of(rows), 3, rate)
    kept = {rows[number][:2] for number in found.rows_N[found.is_sampled_N]}
    assert all(found.is_sampled_N[place] for place, number in enumerate(found.rows_N) if rows[number][4])
    for number in found.rows_N:
        if not rows[number][4]:
            (alone,) = select(keys_of([rows[number]]), 3, rate).is_sampled_N
            assert alone == (rows[number][:2] in kept)


def test_sampling_keeps_its_share_whatever_the_slate() -> None:
    number = np.arange(200_000)
    keys = Keys(
        request_N=number // 20,
        pin_N=number % 20,
        ts_N=np.zeros_like(number),
        position_N=(number % 20).astype(np.int16),
        is_positive_N=np.zeros(len(number), np.bool_),
    )
    found = select(keys, 17, 0.25)
    assert found.is_sampled_N.mean() == pytest.approx(0.25, abs=0.005)
    by_slate = found.is_sampled_N.reshape(-1, 20).sum(axis=1)
    assert by_slate.var() == pytest.approx(20 * 0.25 * 0.75, rel=0.05)  # binomial: rows are drawn independently
    assert found.num_slates == np.count_nonzero(by_slate)


def test_words_of_slates_stay_what_they_are() -> None:
    """Committed figures depend on this order."""
    assert slate_words(np.array([0, 1, 2**62]), 17).tolist() == [word(n + word(17)) for n in (0, 1, 2**62)]
