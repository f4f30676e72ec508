import math

import numpy as np
import pytest
from scipy import stats

from trainer.evaluation.lift import Interval, bootstrap, lift_interval, mean_interval, percentile_interval
from trainer.evaluation.metrics import RatioOfSums, auc_statistic
from trainer.recipe import EvaluationConfig

NUM_USERS = 150


def sums(values: np.ndarray) -> RatioOfSums:
    """A mean over users' sums."""
    return RatioOfSums(numerator_U=values, denominator_U=np.ones(len(values)))


def two_models(seed: int, lift: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Users' sums under candidate and baseline: users differ a lot, and alike for both."""
    generator = np.random.default_rng(seed)
    ease = generator.gamma(2.0, size=NUM_USERS)
    noise = generator.normal(scale=0.1, size=(2, NUM_USERS))
    return ease * (1 + lift) + noise[0], ease + noise[1]


def interval_of_lift(candidate: np.ndarray, baseline: np.ndarray, config: EvaluationConfig) -> Interval:
    draws = bootstrap(
        {"candidate": sums(candidate), "baseline": sums(baseline)}, config, num_users=NUM_USERS, num_rows=NUM_USERS
    )
    return lift_interval(draws["candidate"], draws["baseline"], config.confidence)


def test_the_lift_is_relative_and_lies_within_its_interval() -> None:
    candidate, baseline = two_models(seed=0)
    interval = interval_of_lift(candidate, baseline, EvaluationConfig(num_bootstrap=200))
    assert interval.point == pytest.approx(candidate.mean() / baseline.mean() - 1)
    assert interval.low < interval.point < interval.high


def test_a_model_against_itself_has_no_lift_and_no_width() -> None:
    _, baseline = two_models(seed=0)
    assert interval_of_lift(baseline, baseline, EvaluationConfig(num_bootstrap=50)) == Interval(0.0, 0.0, 0.0)


def test_pairing_makes_the_interval_narrower() -> None:
    candidate, baseline = two_models(seed=0)
    config = EvaluationConfig(num_bootstrap=400)
    paired = interval_of_lift(candidate, baseline, config)
    first = bootstrap({"x": sums(candidate)}, config, num_users=NUM_USERS, num_rows=NUM_USERS)["x"]
    other = EvaluationConfig(num_bootstrap=400, seed=1)
    second = bootstrap({"x": sums(baseline)}, other, num_users=NUM_USERS, num_rows=NUM_USERS)["x"]
    unpaired = lift_interval(first, second, config.confidence)
    assert paired.high - paired.low < (unpaired.high - unpaired.low) / 3


def test_clustering_by_user_widens_the_interval_of_dependent_rows() -> None:
    generator = np.random.default_rng(0)
    users = np.repeat(np.arange(60), 20)
    labels = np.repeat(generator.random(60) < 0.5, 20)
    scores = labels * 0.2 + np.repeat(generator.random(60), 20)
    config = EvaluationConfig(num_bootstrap=200)

    def width(clusters: np.ndarray) -> float:
        size = int(clusters.max()) + 1
        draws = bootstrap({"auc": auc_statistic(scores, labels, clusters)}, config, num_users=size, num_rows=1200)
        interval = percentile_interval(draws["auc"], config.confidence)
        return interval.high - interval.low

    assert width(users) > 2.5 * width(np.arange(1200))


def test_the_resamples_spread_as_the_standard_error_says() -> None:
    values, _ = two_models(seed=0)
    config = EvaluationConfig(num_bootstrap=2000)
    draws = bootstrap({"mean": sums(values)}, config, num_users=NUM_USERS, num_rows=NUM_USERS)["mean"][1:]
    assert draws.std() == pytest.approx(values.std() / np.sqrt(NUM_USERS), rel=0.08)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    covered = 0
    for seed in range(200):
        candidate, baseline = two_models(seed=seed)
        config = EvaluationConfig(num_bootstrap=200, confidence=0.9, seed=seed)
        interval = interval_of_lift(candidate, baseline, config)
        covered += interval.low <= 0.1 <= interval.high
    # 200 trials of 90%: 180 expected, standard deviation 4.2.
    assert 165 <= covered <= 193


def test_the_same_seed_gives_the_same_interval_whatever_the_memory_bound() -> None:
    candidate, baseline = two_models(seed=0)
    statistics = {"candidate": sums(candidate), "baseline": sums(baseline)}
    config = EvaluationConfig(num_bootstrap=30)
    wide = bootstrap(statistics, config, num_users=NUM_USERS, num_rows=NUM_USERS)
    narrow = bootstrap(statistics, config, num_users=NUM_USERS, num_rows=10**9)
    other = bootstrap(statistics, EvaluationConfig(num_bootstrap=30, seed=5), num_users=NUM_USERS, num_rows=NUM_USERS)
    np.testing.assert_allclose(wide["candidate"], narrow["candidate"])
    assert not np.allclose(wide["candidate"][1:], other["candidate"][1:])


def test_undefined_resamples_are_left_out_only_while_they_are_rare() -> None:
    resamples = np.arange(1000, dtype=float)
    rare, common = resamples.copy(), resamples.copy()
    rare[:20], common[:40] = np.nan, np.nan
    assert percentile_interval(np.append(1.0, rare), 0.95).low > 20
    assert math.isnan(percentile_interval(np.append(1.0, common), 0.95).low)


def test_a_lift_over_zero_is_undefined() -> None:
    interval = lift_interval(np.ones(5), np.zeros(5), 0.95)
    assert math.isnan(interval.point) and math.isnan(interval.low) and math.isnan(interval.high)


def test_mean_interval_is_students_t() -> None:
    values = [0.012, 0.007, 0.015, 0.001, 0.009]
    interval = mean_interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert interval.low == pytest.approx(low)
    assert interval.high == pytest.approx(high)
    assert mean_interval(values, 0.5).high < interval.high


def test_mean_interval_of_one_value_has_no_ends_and_of_none_is_refused() -> None:
    assert mean_interval([0.5]).point == 0.5
    assert math.isnan(mean_interval([0.5]).low)
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([])
