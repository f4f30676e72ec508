"""Metrics of one head on held-out impressions, in a form that can be resampled by user thousands of times.

Each metric exists as a *statistic*: an object that was prepared once (sorted, or summed by user) and that returns the
metric for any number of times that each user is counted. The plain functions count every user once.

A label is whether a row is positive or, where a log's truth is known, the probability that it is: then each metric is
the one that is expected over all draws of the labels (the AUC a ratio of two such expectations).

Shape legend: R rows (impressions), S slates, U users, B resamples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SMALLEST_PROBABILITY = 1e-7


class Statistic(Protocol):
    """A metric as a function of how often each user is counted."""

    def resample(self, counts_BU: Ints) -> Floats:
        """The metric of each resample, float64 [B]; NaN where it is undefined.

        Args:
            counts_BU: How often each resample counts each user, int64 [B, U].
        """
        ...


@dataclass(frozen=True, kw_only=True)
class RatioOfSums:
    """A metric that is one sum over users divided by another: HIT@k, log-loss and calibration are.

    Attributes:
        numerator_U: Each user's share of the numerator, float64 [U].
        denominator_U: Each user's share of the denominator, float64 [U].
    """

    numerator_U: Floats
    denominator_U: Floats

    def resample(self, counts_BU: Ints) -> Floats:
        """The ratio of each resample, float64 [B]; NaN where the denominator is zero."""
        return _divide(counts_BU @ self.numerator_U, counts_BU @ self.denominator_U)


@dataclass(frozen=True, kw_only=True)
class PairOrder:
    """Area under the ROC curve over all pairs of rows, sorted once; a tied pair counts one half.

    Attributes:
        user_R: User index of each row, rows sorted by score, int64 [R].
        positive_R: Label of each row, in the same order, float64 [R].
        tie_starts: Where each run of equal scores begins, int64.
    """

    user_R: Ints
    positive_R: Floats
    tie_starts: Ints

    def resample(self, counts_BU: Ints) -> Floats:
        """The AUC of each resample, float64 [B]; NaN where a resample lacks positives or negatives."""
        weights_BR = counts_BU[:, self.user_R].astype(np.float64)
        positives = np.add.reduceat(weights_BR * self.positive_R, self.tie_starts, axis=1)
        negatives = np.add.reduceat(weights_BR * (1.0 - self.positive_R), self.tie_starts, axis=1)
        negatives_below = np.cumsum(negatives, axis=1) - negatives
        num_ordered = (positives * (negatives_below + negatives / 2)).sum(axis=1)
        return _divide(num_ordered, positives.sum(axis=1) * negatives.sum(axis=1))


def hit_statistic(scores: ArrayLike, labels: ArrayLike, slates: ArrayLike, users: Ints, k: int) -> RatioOfSums:
    """HIT@k by user: engaged pins among the top k of a slate, summed; over the number of slates.

    Follows TransAct (Xia et al., KDD 2023), averaged over slates. A tie across the k-th place counts its expectation
    over all orders of the tied pins (McSherry and Najork, ECIR 2008): it depends neither on the order of the rows nor
    on the labels, and a model that scores all pins alike gets what chance gets.

    Args:
        scores: Scores, higher is better, float [R].
        labels: Whether the pin was engaged, 0 to 1 [R].
        slates: Slate of each row, int [R]; a slate belongs to one user.
        users: User index of each row, 0 to U - 1, int64 [R].
        k: Pins of a slate that count as its top; a slate of fewer pins is all top.

    Returns:
        The statistic, in engaged pins a slate.
    """
    scores_R = np.asarray(scores, dtype=np.float64)
    _, slate_R = np.unique(np.asarray(slates), return_inverse=True)
    order = np.lexsort((-scores_R, slate_R))
    slate_R, scores_R = slate_R[order], scores_R[order]
    is_new_slate = _begins_run(slate_R)
    is_new_tie = is_new_slate | _begins_run(scores_R)
    tie_R = np.cumsum(is_new_tie) - 1
    tie_starts = np.flatnonzero(is_new_tie)
    slate_start_R = np.flatnonzero(is_new_slate)[np.cumsum(is_new_slate) - 1]
    num_above = tie_starts - slate_start_R[tie_starts]
    share_in_top = np.clip((k - num_above) / np.bincount(tie_R), 0.0, 1.0)
    hits_R = share_in_top[tie_R] * np.asarray(labels, dtype=np.float64)[order]
    user_R = users[order]
    return RatioOfSums(
        numerator_U=_sum_by_user(user_R, hits_R),
        denominator_U=_sum_by_user(user_R, is_new_slate),
    )


def auc_statistic(scores: ArrayLike, labels: ArrayLike, users: Ints) -> PairOrder:
    """Area under the ROC curve, prepared by one sort.

    Args:
        scores: Scores, higher is better, float [R].
        labels: Whether the row is positive, 0 to 1 [R].
        users: User index of each row, 0 to U - 1, int64 [R].
    """
    scores_R = np.asarray(scores, dtype=np.float64)
    order = np.argsort(scores_R, kind="stable")
    return PairOrder(
        user_R=users[order],
        positive_R=np.asarray(labels, dtype=np.float64)[order],
        tie_starts=np.flatnonzero(_begins_run(scores_R[order])),
    )


def log_loss_statistic(probabilities: ArrayLike, labels: ArrayLike, users: Ints) -> RatioOfSums:
    """Mean binary cross-entropy a row, in nats; probabilities are clipped to 1e-7 .. 1 - 1e-7.

    Args:
        probabilities: Predicted probabilities, float [R].
        labels: Whether the row is positive, 0 to 1 [R].
        users: User index of each row, 0 to U - 1, int64 [R].
    """
    clipped_R = np.clip(np.asarray(probabilities, dtype=np.float64), _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
    labels_R = np.asarray(labels, dtype=np.float64)
    losses_R = -(labels_R * np.log(clipped_R) + (1.0 - labels_R) * np.log(1.0 - clipped_R))
    return RatioOfSums(
        numerator_U=_sum_by_user(users, losses_R), denominator_U=_sum_by_user(users, np.ones_like(losses_R))
    )


def calibration_statistic(probabilities: ArrayLike, labels: ArrayLike, users: Ints) -> RatioOfSums:
    """Predicted over observed positives; 1 is calibrated, above 1 predicts too many.

    Args:
        probabilities: Predicted probabilities, float [R].
        labels: Whether the row is positive, 0 to 1 [R].
        users: User index of each row, 0 to U - 1, int64 [R].
    """
    return RatioOfSums(numerator_U=_sum_by_user(users, probabilities), denominator_U=_sum_by_user(users, labels))


def statistics(
    scores: ArrayLike, labels: ArrayLike, slates: ArrayLike, users: Ints, *, label: str, k: int
) -> dict[str, Statistic]:
    """Every metric of one head: ``<label>_hit<k>``, ``<label>_auc``, ``<label>_log_loss`` and ``<label>_calibration``.

    Arguments as in `hit_statistic`, scores being probabilities.
    """
    return {
        f"{label}_hit{k}": hit_statistic(scores, labels, slates, users, k),
        f"{label}_auc": auc_statistic(scores, labels, users),
        f"{label}_log_loss": log_loss_statistic(scores, labels, users),
        f"{label}_calibration": calibration_statistic(scores, labels, users),
    }


def hit_at_k(scores: ArrayLike, labels: ArrayLike, slates: ArrayLike, k: int) -> float:
    """Mean over slates of the engaged pins among the top k; see `hit_statistic`. NaN without rows."""
    return _once(lambda users: hit_statistic(scores, labels, slates, users, k), scores)


def auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the ROC curve, ties exact; NaN when all labels are alike, for there is no pair to order."""
    return _once(lambda users: auc_statistic(scores, labels, users), scores)


def log_loss(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean binary cross-entropy in nats; see `log_loss_statistic`. NaN without rows."""
    return _once(lambda users: log_loss_statistic(probabilities, labels, users), probabilities)


def calibration(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Predicted over observed positives; NaN when none was observed."""
    return _once(lambda users: calibration_statistic(probabilities, labels, users), probabilities)


def _once(prepare: Callable[[Ints], Statistic], rows: ArrayLike) -> float:
    """The statistic with every row counted once, as if all were one user's."""
    num_rows = len(np.asarray(rows))
    if num_rows == 0:
        return float("nan")
    return float(prepare(np.zeros(num_rows, dtype=np.int64)).resample(np.ones((1, 1), dtype=np.int64))[0])


def _begins_run(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Whether each value differs from the one before it; the first does."""
    return np.concatenate([np.ones(1, dtype=bool), values[1:] != values[:-1]])


def _sum_by_user(users: Ints, values: ArrayLike) -> Floats:
    """Sums of the rows' values, float64 [U]."""
    return np.bincount(users, weights=np.asarray(values, dtype=np.float64)).astype(np.float64)


def _divide(numerator: Floats, denominator: Floats) -> Floats:
    """The quotient, float64; NaN wherever the denominator is zero."""
    quotient = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator != 0)
    return quotient
