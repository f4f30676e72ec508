import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainer.windows.quality.drift import NUM_GROUPS, psi_by_chance, shift_of
from trainer.windows.quality.histograms import NUM_BINS, bins_of

COUNTS = hnp.arrays(np.int64, NUM_BINS, elements=st.integers(0, 1000), fill=st.just(0)).filter(lambda c: c.any())


def histogram(values: np.ndarray) -> np.ndarray:
    return np.bincount(bins_of(values.astype(np.float32)), minlength=NUM_BINS)


@given(COUNTS, COUNTS)
def test_the_index_is_what_its_definition_says(expected: np.ndarray, found: np.ndarray) -> None:
    shift = shift_of(expected, found)
    assert 1 <= len(shift.edges) <= NUM_GROUPS
    p, q = (
        (np.array(shares) * counts.sum() + 0.5) for shares, counts in ((shift.expected, expected), (shift.found, found))
    )
    p, q = p / p.sum(), q / q.sum()
    oracle = float(np.sum((q - p) * np.log(q / p)))
    assert shift.psi == pytest.approx(oracle, abs=1e-9)
    assert shift.psi >= 0
    assert sum(shift.expected) == pytest.approx(1) and sum(shift.found) == pytest.approx(1)
    assert all(low <= high for low, high in shift.edges)
    assert all(left[1] <= right[0] for left, right in zip(shift.edges, shift.edges[1:], strict=False))


@given(COUNTS)
def test_a_day_does_not_differ_from_itself(counts: np.ndarray) -> None:
    assert shift_of(counts, counts).psi == pytest.approx(0, abs=1e-12)
    assert shift_of(counts, 3 * counts).psi < 0.3  # but for the half rows of groups that hold next to nothing


def test_a_shifted_normal_has_the_index_that_is_known_of_it() -> None:
    """Both ways of the divergence of N(0, 1) and N(d, 1) sum to d squared; ten groups see nearly all of it."""
    rng = np.random.default_rng(0)
    usual = histogram(rng.normal(size=200_000))
    for distance in (0.0, 0.3, 0.6):
        found = shift_of(usual, histogram(rng.normal(distance, size=200_000))).psi
        assert found == pytest.approx(distance**2, rel=0.12, abs=1e-3)


def test_groups_are_of_about_equal_size() -> None:
    shift = shift_of(*2 * [histogram(np.random.default_rng(1).normal(size=50_000))])
    assert len(shift.edges) == NUM_GROUPS
    assert all(0.05 < share < 0.15 for share in shift.expected)


def test_a_constant_that_moves_is_a_shift() -> None:
    zeros = histogram(np.zeros(500))
    assert shift_of(zeros, zeros).psi == 0
    for value in (-1.0, 1.0):
        assert shift_of(zeros, histogram(np.full(500, value))).psi > 5
    assert shift_of(zeros, histogram(np.append(np.zeros(450), -np.ones(50)))).psi > 0.25


def test_chance_alone_stays_below_its_limit() -> None:
    rng = np.random.default_rng(2)
    num_usual, num_found, limit = 5000, 200, psi_by_chance(5000, 200)
    indices = [
        shift_of(histogram(rng.normal(size=num_usual)), histogram(rng.normal(size=num_found))).psi for _ in range(300)
    ]
    assert np.mean(np.array(indices) > limit) <= 0.01
    assert np.mean(indices) == pytest.approx((NUM_GROUPS - 1) * (1 / num_usual + 1 / num_found), rel=0.2)
