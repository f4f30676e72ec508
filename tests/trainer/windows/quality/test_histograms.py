import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainer.windows.quality.histograms import ALL_ROWS, NUM_BINS, ONE_IN, PERIOD_ROWS, Histograms, bin_edges, bins_of

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
VALUES = hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=1, max_side=300), elements=FINITE)


@given(VALUES)
def test_a_number_lies_between_the_edges_of_its_bin(values: np.ndarray) -> None:
    edges, bins = bin_edges(), bins_of(values)
    assert len(edges) == NUM_BINS + 1
    tiny = np.abs(values) < np.finfo(np.float32).tiny / 8
    assert ((edges[bins] <= values) | tiny).all()
    assert ((values <= edges[bins + 1]) | tiny).all()


@given(VALUES)
def test_greater_numbers_have_greater_bins(values: np.ndarray) -> None:
    bins = bins_of(np.sort(values))
    assert (np.diff(bins) >= 0).all()


def test_bins_are_no_wider_than_an_eighth() -> None:
    edges = bin_edges()
    normal = edges[(edges >= np.finfo(np.float32).tiny) & (edges < 1e38)]
    assert np.allclose(np.diff(normal).max() / normal[-2], 1 / 8, rtol=0.2)
    assert (np.diff(normal) <= normal[:-1] / 8 * (1 + 1e-12)).all()


def test_minus_zero_is_zero() -> None:
    assert bins_of(np.array([-0.0], np.float32)) == bins_of(np.array([0.0], np.float32)) == NUM_BINS // 2


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 300), st.integers(1, 5)), elements=st.floats(-1e6, 1e6, width=32)),
    st.lists(st.integers(1, 200), min_size=1, max_size=8),
)
def test_counts_moments_and_range_are_those_of_numpy(values: np.ndarray, sizes: list[int]) -> None:
    """However the rows come in chunks, and however the chunks are spread over two histograms that are merged."""
    pair = [Histograms(values.shape[1]), Histograms(values.shape[1])]
    start = 0
    for turn, size in enumerate([*sizes, len(values)]):
        pair[turn % 2].add(values[start : start + size])
        start += size
    pair[0].merge(pair[1])
    whole = Histograms.from_json(json.loads(json.dumps(pair[0].to_json())))
    for column in range(values.shape[1]):
        expected = np.bincount(bins_of(values[:, column].copy()), minlength=NUM_BINS)
        assert (whole.counts_FB[column] == expected).all()
        wide = values[:, column].astype(np.float64)
        mean, deviation = whole.moments(column)
        scale = max(1.0, float(np.abs(wide).max()))
        assert abs(mean - wide.mean()) <= 1e-9 * scale
        assert abs(deviation - wide.std()) <= 1e-5 * scale
    assert (whole.lows_F == values.min(axis=0)).all()
    assert (whole.highs_F == values.max(axis=0)).all()


def test_a_large_day_is_sampled_evenly_and_its_range_is_exact() -> None:
    """In whatever chunks; slates of 16, whose positions a step of 16 rows would tell apart, are no hard case."""
    num_rows = ALL_ROWS + 8 * PERIOD_ROWS
    positions = np.tile(np.arange(16, dtype=np.float32), num_rows // 16).reshape(-1, 1)
    positions[-1] = 99.0  # on no sampled row
    histograms = Histograms(1)
    for start in range(0, num_rows, 40_000):
        histograms.add(positions[start : start + 40_000])
    assert (histograms.counts_FB[0, bins_of(np.arange(8, dtype=np.float32))] == num_rows / 16).all()
    assert histograms.counts_FB.sum() == num_rows
    assert histograms.moments(0)[0] == 7.5
    assert (histograms.lows_F[0], histograms.highs_F[0]) == (0.0, 99.0)
    assert PERIOD_ROWS // ONE_IN % 16 == 0
