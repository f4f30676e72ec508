"""Histograms whose edges are known before the data, so that those of two days, or of two shards, add up.

A bin is what a float32's leading 12 bits say: sign, exponent and 3 bits of mantissa. That is 8 bins for each doubling
of the magnitude, none wider than an eighth of its values, over all finite numbers, and it costs a shift to find.

Shapes: N rows, F columns of values, B bins.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trainer.windows.quality.packing import packed, unpacked

NUM_BINS = 4096
"""Ascending: those below zero, then zero with all that is smaller than any normal number, then those above."""

ALL_ROWS = 131_072
ONE_IN = 16
PERIOD_ROWS = 65_536

_HALF = NUM_BINS // 2
_SHIFT = np.uint32(20)
_LANES = 64


class Histograms:
    """Counts, moments and range of columns of numbers, added up chunk by chunk in fixed memory.

    The first 131,072 rows all count. Of later ones, the first 4,096 of each 65,536 do, 16 times each, so that a large
    day costs little more than a small one; rows that follow each other, since every so-manieth would favour some
    positions of a slate. The range is exact throughout.

    Args:
        num_columns: Columns.
    """

    def __init__(self, num_columns: int) -> None:
        self.counts_FB = np.zeros((num_columns, NUM_BINS), np.int64)
        self.sums_F = np.zeros(num_columns)
        self.sums_of_squares_F = np.zeros(num_columns)
        self.lows_F = np.full(num_columns, np.inf)
        self.highs_F = np.full(num_columns, -np.inf)
        self._num_rows = 0

    def add(self, values_NF: NDArray[np.float32]) -> None:
        """Counts finite numbers.

        Args:
            values_NF: One row an impression; float32.
        """
        start = 0
        while start < len(values_NF):
            phase = self._num_rows % PERIOD_ROWS
            part_NF = np.ascontiguousarray(values_NF[start : start + PERIOD_ROWS - phase])
            self._widen(part_NF)
            if self._num_rows < ALL_ROWS:
                self._count(part_NF, 1)
            else:
                self._count(part_NF[: max(0, PERIOD_ROWS // ONE_IN - phase)], ONE_IN)
            start += len(part_NF)
            self._num_rows += len(part_NF)

    def _widen(self, values_NF: NDArray[np.float32]) -> None:
        num_columns = values_NF.shape[1]
        # Rows side by side: NumPy's minimum over long rows is many times as fast as over short ones.
        num_whole = len(values_NF) // _LANES * _LANES
        for part_NF in (values_NF[:num_whole].reshape(-1, _LANES * num_columns), values_NF[num_whole:]):
            if len(part_NF):
                lows_F = part_NF.min(axis=0).reshape(-1, num_columns).min(axis=0)
                highs_F = part_NF.max(axis=0).reshape(-1, num_columns).max(axis=0)
                self.lows_F = np.minimum(self.lows_F, lows_F)
                self.highs_F = np.maximum(self.highs_F, highs_F)

    def _count(self, values_NF: NDArray[np.float32], weight: int) -> None:
        for column, values_N in enumerate(np.ascontiguousarray(values_NF.T)):
            self.counts_FB[column] += weight * np.bincount(bins_of(values_N), minlength=NUM_BINS)
            wide_N = values_N.astype(np.float64)
            self.sums_F[column] += weight * wide_N.sum()
            self.sums_of_squares_F[column] += weight * (wide_N @ wide_N)

    def merge(self, other: Self) -> None:
        """Adds what `other` counted, of the same columns."""
        self.counts_FB += other.counts_FB
        self.sums_F += other.sums_F
        self.sums_of_squares_F += other.sums_of_squares_F
        self.lows_F = np.minimum(self.lows_F, other.lows_F)
        self.highs_F = np.maximum(self.highs_F, other.highs_F)
        self._num_rows += other._num_rows

    def moments(self, column: int) -> tuple[float, float]:
        """Mean and standard deviation of a column that has values."""
        count = int(self.counts_FB[column].sum())
        mean = self.sums_F[column] / count
        return float(mean), float(np.sqrt(max(0.0, self.sums_of_squares_F[column] / count - mean**2)))

    def to_json(self) -> list[dict[str, Any]]:
        """One object a column; empty bins are left out, and the range of a column without values is None."""
        return [self._column(column) for column in range(len(self.sums_F))]

    def _column(self, column: int) -> dict[str, Any]:
        counts_B = self.counts_FB[column]
        bins = np.flatnonzero(counts_B)
        has_any = bool(len(bins))
        return {
            "low": float(self.lows_F[column]) if has_any else None,
            "high": float(self.highs_F[column]) if has_any else None,
            "sum": float(self.sums_F[column]),
            "sum_of_squares": float(self.sums_of_squares_F[column]),
            "bins": packed(bins),
            "counts": packed(counts_B[bins]),
        }

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> Self:
        """Reads what `to_json` wrote."""
        histograms = cls(len(columns))
        for column, content in enumerate(columns):
            histograms.counts_FB[column, unpacked(content["bins"])] = unpacked(content["counts"])
            histograms.sums_F[column] = content["sum"]
            histograms.sums_of_squares_F[column] = content["sum_of_squares"]
            if content["low"] is not None:
                histograms.lows_F[column], histograms.highs_F[column] = content["low"], content["high"]
        return histograms


def bins_of(values_N: NDArray[np.float32]) -> NDArray[np.int64]:
    """The bin of each number, 0 to 4095; greater numbers have greater bins."""
    words_N = (values_N.view(np.uint32) >> _SHIFT).astype(np.int64)
    bins_N = np.where(words_N < _HALF, _HALF + words_N, NUM_BINS - 1 - words_N)
    bins_N[bins_N == _HALF - 1] = _HALF  # minus zero, and what is so near to it
    return bins_N


def bin_edges() -> NDArray[np.float64]:
    """The NUM_BINS + 1 edges, ascending, no further out than float32 reaches: bin b lies between edges b and b + 1."""
    words = np.arange(_HALF, dtype=np.uint32) << _SHIFT
    greatest = float(np.finfo(np.float32).max)
    with np.errstate(invalid="ignore"):  # the last of them are NaN
        from_zero = words.view(np.float32).astype(np.float64)
    from_zero[~np.isfinite(from_zero)] = greatest
    return np.concatenate([[-greatest], -from_zero[:0:-1], from_zero, [greatest]])
