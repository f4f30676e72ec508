"""Several arms, each trained with several seeds, judged against one of them on the same held-out rows.

Of every resample of the users, an arm's metric is the mean over its seeds, and its lift is that mean over the
baseline's, less one. The users are the same for all arms and seeds, so what is hard for all cancels. The interval
therefore says how the lift varies over users like those of this held-out day, for the models of these seeds: other
days, and other seeds, vary beyond it.

Shape legend: R held-out rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trainer.errors import InputError
from trainer.evaluation.lift import Interval, bootstrap, lift_interval, percentile_interval
from trainer.evaluation.metrics import Floats, Ints, Statistic, auc_statistic, hit_statistic, statistics
from trainer.evaluation.slices import Slice
from trainer.recipe import EvaluationConfig

LABEL = "save"

Scores = Mapping[str, Mapping[int, Floats]]
"""Predicted probabilities, float64 [R], by arm and seed."""


_Key = tuple[str, int, int | None, str]  # arm, seed, number of the slice or None for all rows, metric


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What one arm reached.

    Metrics are keyed as in `trainer.evaluation.report.Evaluation`; lifts are relative, as fractions.

    Attributes:
        metrics: Means over seeds, with their intervals.
        lift: Of HIT@k and AUC against the baseline; empty for the baseline itself.
        of_seed: Each seed's metrics on the rows as they are.
        lift_of_seed: Each seed's lifts against the baseline with the same seed.
        slices: Lifts within each slice, in the order of the slices. There, AUC is over pairs within the slice; HIT@k
            ranks whole slates and counts the slice's own saves.
    """

    metrics: dict[str, Interval]
    lift: dict[str, Interval]
    of_seed: dict[int, dict[str, float]]
    lift_of_seed: dict[int, dict[str, float]]
    slices: tuple[dict[str, Interval], ...]


def judge_arms(
    config: EvaluationConfig, heldout: pd.DataFrame, scores: Scores, slices: Sequence[Slice], baseline: str
) -> dict[str, Judgement]:
    """Judges every arm.

    Args:
        config: What counts as a hit, and how to resample.
        heldout: One row an impression: request_id, user_id, int64, and ``save``, bool.
        scores: What each model predicts for the rows; every arm has the same seeds.
        slices: Slices to look at by themselves.
        baseline: The arm that the others are judged against.

    Returns:
        A judgement an arm; what is undefined on these rows is NaN.

    Raises:
        InputError: A model's scores are no probabilities.
    """
    users, slates = (pd.factorize(heldout[name], sort=True)[0].astype(np.int64) for name in ("user_id", "request_id"))
    labels = heldout[LABEL].to_numpy(dtype=bool)
    prepared: dict[_Key, Statistic] = {}
    for arm, of_arm in scores.items():
        for seed, scores_R in of_arm.items():
            _refuse_no_probabilities(arm, seed, scores_R)
            whole = statistics(scores_R, labels, slates, users, label=LABEL, k=config.hit_k)
            prepared |= {(arm, seed, None, name): statistic for name, statistic in whole.items()}
            for number, slice_ in enumerate(slices):
                within = _within(slice_, scores_R, labels, slates, users, config.hit_k)
                prepared |= {(arm, seed, number, name): statistic for name, statistic in within.items()}
    draws = bootstrap(prepared, config, num_users=int(users.max()) + 1, num_rows=len(heldout))
    table = _Draws(draws, {arm: tuple(of_arm) for arm, of_arm in scores.items()}, config)
    return {arm: table.judge(arm, baseline, len(slices)) for arm in scores}


class _Draws:
    """Points and resamples of every metric."""

    def __init__(
        self,
        draws: Mapping[_Key, Floats],
        seeds: Mapping[str, Sequence[int]],
        config: EvaluationConfig,
    ) -> None:
        self._draws, self._seeds, self._config = draws, seeds, config
        self._lifted = (f"{LABEL}_hit{config.hit_k}", f"{LABEL}_auc")
        self._names = tuple(dict.fromkeys(name for _, _, number, name in draws if number is None))

    def judge(self, arm: str, baseline: str, num_slices: int) -> Judgement:
        is_baseline = arm == baseline
        of_seed = {
            seed: {name: float(self._draws[arm, seed, None, name][0]) for name in self._names}
            for seed in self._seeds[arm]
        }
        return Judgement(
            metrics={
                name: percentile_interval(self._mean(arm, None, name), self._config.confidence) for name in self._names
            },
            lift={} if is_baseline else self._lifts(arm, baseline, None),
            of_seed=of_seed,
            lift_of_seed={} if is_baseline else {seed: self._seed_lifts(arm, baseline, seed) for seed in of_seed},
            slices=() if is_baseline else tuple(self._lifts(arm, baseline, number) for number in range(num_slices)),
        )

    def _mean(self, arm: str, number: int | None, name: str) -> Floats:
        mean: Floats = np.mean([self._draws[arm, seed, number, name] for seed in self._seeds[arm]], axis=0)
        return mean

    def _lifts(self, arm: str, baseline: str, number: int | None) -> dict[str, Interval]:
        return {
            name: lift_interval(
                self._mean(arm, number, name), self._mean(baseline, number, name), self._config.confidence
            )
            for name in self._lifted
        }

    def _seed_lifts(self, arm: str, baseline: str, seed: int) -> dict[str, float]:
        def point(arm: str, name: str) -> float:
            return float(self._draws[arm, seed, None, name][0])

        return {
            name: point(arm, name) / point(baseline, name) - 1 if point(baseline, name) else float("nan")
            for name in self._lifted
        }


def _within(
    slice_: Slice, scores_R: Floats, labels: NDArray[np.bool_], slates: Ints, users: Ints, k: int
) -> dict[str, Statistic]:
    rows = slice_.rows_R
    return {
        f"{LABEL}_hit{k}": hit_statistic(scores_R, labels & rows, slates, users, k),
        f"{LABEL}_auc": auc_statistic(scores_R[rows], labels[rows], users[rows]),
    }


def _refuse_no_probabilities(arm: str, seed: int, scores_R: Floats) -> None:
    if not ((scores_R >= 0) & (scores_R <= 1)).all():
        raise InputError(f"arm '{arm}', seed {seed}: predicts no probabilities; did training diverge? lower its rate")
