import itertools

import numpy as np
import pytest
from sklearn import metrics as oracle

from trainer.evaluation.metrics import (
    auc,
    auc_statistic,
    calibration,
    hit_at_k,
    hit_statistic,
    log_loss,
    log_loss_statistic,
    statistics,
)


def rows(num_rows: int = 400, num_scores: int = 9, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores with many ties, and labels that lean on them."""
    generator = np.random.default_rng(seed)
    scores = generator.integers(1, num_scores + 1, num_rows) / (num_scores + 1)
    return scores, generator.random(num_rows) < scores


def test_hit_counts_engaged_pins_in_the_top_of_each_slate() -> None:
    slates = [7, 7, 7, 7, 3, 3, 3, 3, 9]
    scores = [0.9, 0.8, 0.7, 0.1, 0.2, 0.9, 0.5, 0.4, 0.3]
    labels = [1, 0, 1, 1, 1, 0, 0, 0, 1]
    # Slate 7 has hits at places 1 and 3, slate 3 has its only engaged pin at place 4, slate 9 has one pin, a hit.
    assert hit_at_k(scores, labels, slates, 3) == pytest.approx((2 + 0 + 1) / 3)
    assert hit_at_k(scores, labels, slates, 1) == pytest.approx((1 + 0 + 1) / 3)


def test_a_tie_across_the_last_place_counts_its_expectation_over_all_orders() -> None:
    scores, labels = np.array([0.9, 0.5, 0.5, 0.5, 0.1]), np.array([0, 1, 0, 1, 1])
    hits = []
    for order in itertools.permutations([1, 2, 3]):
        top = [0, *order[:2]]
        hits.append(labels[top].sum())
    assert hit_at_k(scores, labels, [1] * 5, 3) == pytest.approx(np.mean(hits))


def test_ties_follow_neither_the_order_of_rows_nor_the_labels() -> None:
    labels = np.array([1, 0, 0, 0, 0])
    constant = np.full(5, 0.5)
    assert hit_at_k(constant, labels, [1] * 5, 3) == pytest.approx(3 / 5)
    assert hit_at_k(constant, labels[::-1], [1] * 5, 3) == pytest.approx(3 / 5)


def test_hit_is_the_same_for_rows_in_any_order() -> None:
    scores, labels = rows()
    slates = np.repeat(np.arange(80), 5)
    shuffled = np.random.default_rng(1).permutation(len(scores))
    value = hit_at_k(scores, labels, slates, 3)
    assert hit_at_k(scores[shuffled], labels[shuffled], slates[shuffled], 3) == pytest.approx(value)


def test_auc_with_ties_equals_sklearn() -> None:
    scores, labels = rows()
    assert len(np.unique(scores)) < len(scores)
    assert auc(scores, labels) == pytest.approx(oracle.roc_auc_score(labels, scores), abs=1e-12)


def test_auc_of_one_class_is_undefined() -> None:
    assert np.isnan(auc([0.1, 0.2], [1, 1]))
    assert np.isnan(auc([0.1, 0.2], [0, 0]))
    assert np.isnan(auc([], []))


def test_log_loss_equals_sklearn_and_survives_certainty() -> None:
    scores, labels = rows()
    assert log_loss(scores, labels) == pytest.approx(oracle.log_loss(labels, scores), abs=1e-12)
    assert np.isfinite(log_loss([0.0, 1.0], [1, 0]))


def test_calibration_is_predicted_over_observed() -> None:
    assert calibration([0.5, 0.5, 0.5, 0.9], [1, 0, 0, 1]) == pytest.approx(2.4 / 2)
    assert np.isnan(calibration([0.5], [0]))


def test_resampling_a_user_twice_equals_repeating_its_rows() -> None:
    scores, labels = rows(num_rows=60)
    users = np.random.default_rng(2).integers(0, 6, 60)
    users[:6] = np.arange(6)
    slates = users * 10 + np.arange(60) % 3
    counts = np.array([[2, 0, 1, 3, 0, 1], [1, 1, 1, 1, 1, 1]])
    repeats = counts[0][users]
    # Each copy of a user brings its own copy of its slates.
    copied_slates = np.concatenate([slate * 100 + np.arange(n) for slate, n in zip(slates, repeats, strict=True)])
    repeated_scores, repeated_labels = np.repeat(scores, repeats), np.repeat(labels, repeats)

    hits = hit_statistic(scores, labels, slates, users, 3).resample(counts)
    assert hits[0] == pytest.approx(hit_at_k(repeated_scores, repeated_labels, copied_slates, 3))
    assert hits[1] == pytest.approx(hit_at_k(scores, labels, slates, 3))
    aucs = auc_statistic(scores, labels, users).resample(counts)
    assert aucs[0] == pytest.approx(oracle.roc_auc_score(repeated_labels, repeated_scores))
    assert aucs[1] == pytest.approx(auc(scores, labels))
    losses = log_loss_statistic(scores, labels, users).resample(counts)
    assert losses[0] == pytest.approx(oracle.log_loss(repeated_labels, repeated_scores))


def test_a_resample_without_positives_has_no_auc_but_others_do() -> None:
    statistic = auc_statistic([0.1, 0.9, 0.2], [0, 1, 0], np.array([0, 1, 2]))
    values = statistic.resample(np.array([[2, 0, 1], [1, 2, 0]]))
    assert np.isnan(values[0])
    assert values[1] == 1.0


def test_statistics_are_named_by_head_and_k() -> None:
    scores, labels = rows(num_rows=10)
    named = statistics(scores, labels, np.zeros(10), np.zeros(10, dtype=np.int64), label="click", k=5)
    assert list(named) == ["click_hit5", "click_auc", "click_log_loss", "click_calibration"]
