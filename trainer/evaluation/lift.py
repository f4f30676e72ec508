"""Confidence intervals: a paired bootstrap clustered by user, and Student's t over windows or seeds.

A user's impressions depend on each other, so whole users are resampled (Efron and Tibshirani, "An Introduction to the
Bootstrap", 1993; percentile intervals). Candidate and baseline are resampled with the *same* users: what is hard for
both cancels in their ratio.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import stdtrit

from trainer.evaluation.metrics import Floats, Ints, Statistic
from trainer.recipe import EvaluationConfig

Key = TypeVar("Key", bound=Hashable)

_BLOCK_VALUES = 2_000_000  # counts of a block of resamples, by users or by rows: a few 16 MB arrays at a time


@dataclass(frozen=True)
class Interval:
    """A point and the ends of its confidence interval, in the point's unit; all NaN where undefined.

    Attributes:
        point: The value on the rows as they are.
        low: Lower end.
        high: Upper end.
    """

    point: float
    low: float
    high: float


def bootstrap(
    statistics: Mapping[Key, Statistic], config: EvaluationConfig, *, num_users: int, num_rows: int
) -> dict[Key, Floats]:
    """Every statistic on the rows as they are and on resamples of the users, the same resamples for all.

    Args:
        statistics: What to resample, by any key.
        config: Number of resamples and their seed.
        num_users: Users, U; the statistics index them 0 to U - 1.
        num_rows: Rows behind the statistics; with U it bounds the memory taken.

    Returns:
        For each key float64 [1 + num_bootstrap]: the point, then the resamples.
    """
    block_size = max(1, _BLOCK_VALUES // max(num_users, num_rows))
    parts: dict[Key, list[Floats]] = {key: [] for key in statistics}
    for counts_BU in _counts(num_users, config, block_size):
        for key, statistic in statistics.items():
            parts[key].append(statistic.resample(counts_BU))
    return {key: np.concatenate(blocks) for key, blocks in parts.items()}


def percentile_interval(draws: Floats, confidence: float) -> Interval:
    """The interval of one metric.

    Args:
        draws: The point, then the resamples, as `bootstrap` returns them.
        confidence: Coverage, 0 to 1.

    Returns:
        The point and the percentiles of the resamples. Undefined resamples (an AUC without positives, say) are left
        out as long as they could not fill a tail; otherwise both ends are NaN.
    """
    point, resamples = float(draws[0]), draws[1:]
    tail = (1 - confidence) / 2
    is_defined = np.isfinite(resamples)
    if not np.isfinite(point) or np.mean(~is_defined) > tail:
        return Interval(point if np.isfinite(point) else float("nan"), float("nan"), float("nan"))
    low, high = np.quantile(resamples[is_defined], [tail, 1 - tail])
    return Interval(point, float(low), float(high))


def lift_interval(candidate_draws: Floats, baseline_draws: Floats, confidence: float) -> Interval:
    """Relative lift, candidate over baseline minus one, as a fraction: 0.0116 is +1.16%.

    Args:
        candidate_draws: Point and resamples of the candidate, as `bootstrap` returns them.
        baseline_draws: The same of the baseline, from the same call.
        confidence: Coverage, 0 to 1.

    Returns:
        The lift; NaN where the baseline is zero.
    """
    lifts = np.full(candidate_draws.shape, np.nan)
    np.divide(candidate_draws, baseline_draws, out=lifts, where=baseline_draws != 0)
    return percentile_interval(lifts - 1, confidence)


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean over independent windows or seeds with Student's t interval.

    Args:
        values: One value a window or seed.
        confidence: Coverage, 0 to 1.

    Returns:
        The mean and its interval; a single value has no spread to judge by, so its ends are NaN.

    Raises:
        ValueError: There are no values.
    """
    if not len(values):
        raise ValueError("mean_interval needs at least one value")
    point = float(np.mean(values))
    if len(values) == 1:
        return Interval(point, float("nan"), float("nan"))
    standard_error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    half_width = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * standard_error
    return Interval(point, point - half_width, point + half_width)


def _counts(num_users: int, config: EvaluationConfig, block_size: int) -> Iterator[Ints]:
    """Blocks of counts, int64 [<= block_size, U]: every user once, then the resamples; the same for any block size."""
    yield np.ones((1, num_users), dtype=np.int64)
    generator = np.random.default_rng(config.seed)
    for start in range(0, config.num_bootstrap, block_size):
        num_resamples = min(block_size, config.num_bootstrap - start)
        drawn = generator.integers(num_users, size=(num_resamples, num_users))
        yield np.stack([np.bincount(users, minlength=num_users) for users in drawn])
