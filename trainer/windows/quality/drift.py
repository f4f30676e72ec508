"""How far apart two distributions of a feature are.

The population stability index of shares p (expected) and q (found) over groups is the sum of (q - p) ln(q / p), the
Kullback-Leibler divergence both ways. The rule of thumb in credit scoring, where it comes from, is: below 0.1 no shift,
to 0.25 a small one, above that a major one (Siddiqi, Credit Risk Scorecards, 2006). Without any shift it is still not
zero: divided by 1/m + 1/n, for m and n observations, it is near a chi-squared variable with one degree of freedom less
than there are groups (Yurdakul, Statistical Properties of the Population Stability Index, 2018).

Shapes: B bins, G groups.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.windows.quality.histograms import bin_edges

NUM_GROUPS = 10

_CHI_SQUARED_9 = 27.877
"""Quantile 0.999 of chi-squared with 9 degrees of freedom."""

_HALF_A_ROW = 0.5


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Two distributions over the same groups.

    Attributes:
        edges: Lower and upper edge of each group, ascending.
        expected: Share of the trailing days' values in each.
        found: Share of the day's.
        psi: Population stability index.
    """

    edges: tuple[tuple[float, float], ...]
    expected: tuple[float, ...]
    found: tuple[float, ...]
    psi: float


def shift_of(expected_B: NDArray[np.int64], found_B: NDArray[np.int64]) -> Shift:
    """Holds one histogram against another, over at most ten groups of about equal expected counts.

    A value that alone makes up more than a fifth has a group to itself. Half a row is added to each group, so that an
    empty one does not make the index infinite.

    Args:
        expected_B: Counts by bin, not all zero.
        found_B: Counts by bin, not all zero.
    """
    present = np.flatnonzero(expected_B + found_B)
    expected, found = expected_B[present], found_B[present]
    middles = (np.cumsum(expected) - expected / 2) / expected.sum()
    group_of = np.minimum((middles * NUM_GROUPS).astype(np.int64), NUM_GROUPS - 1)
    groups, starts = np.unique(group_of, return_index=True)
    counts_2G = [np.add.reduceat(counts, starts) for counts in (expected, found)]
    p, q = ((counts + _HALF_A_ROW) / (counts + _HALF_A_ROW).sum() for counts in counts_2G)
    edges = bin_edges()
    lows, highs = edges[present[starts]], edges[present[np.append(starts[1:], len(present)) - 1] + 1]
    return Shift(
        edges=tuple(zip(lows.tolist(), highs.tolist(), strict=True)),
        expected=tuple((counts_2G[0] / expected.sum()).tolist()),
        found=tuple((counts_2G[1] / found.sum()).tolist()),
        psi=float(((q - p) * np.log(q / p)).sum()) if len(groups) > 1 else 0.0,
    )


def psi_by_chance(num_expected: int, num_found: int) -> float:
    """The index that one in a thousand comparisons exceeds where nothing has shifted.

    Args:
        num_expected: Independent observations behind the expected shares.
        num_found: Behind the found ones.
    """
    return _CHI_SQUARED_9 * (1 / num_expected + 1 / num_found)
