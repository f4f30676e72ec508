"""One evaluation: candidate and champion on the same held-out impressions, every metric with its interval."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from trainer.errors import InputError
from trainer.evaluation.lift import Interval, bootstrap, lift_interval, percentile_interval
from trainer.evaluation.metrics import Floats, statistics
from trainer.recipe import EvaluationConfig

_KEY_COLUMNS = ("request_id", "user_id", "pin_id")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of candidate and champion on one held-out day, and the lift between them.

    Metrics are keyed ``<label>_hit<k>`` (engaged pins a slate), ``<label>_auc``, ``<label>_log_loss`` (nats) and
    ``<label>_calibration`` (predicted over observed).

    Attributes:
        labels: The heads.
        hit_k: Pins of a slate that count as its top.
        confidence: Coverage of every interval.
        num_rows: Held-out impressions.
        num_slates: Slates among them.
        num_users: Users among them; the intervals resample these.
        candidate: The candidate's metrics.
        champion: The champion's on the same rows; None when there is no champion.
        lift: Relative lifts as fractions, of ``<label>_hit<k>`` and ``<label>_auc``; empty when there is no champion.
    """

    labels: tuple[str, ...]
    hit_k: int
    confidence: float
    num_rows: int
    num_slates: int
    num_users: int
    candidate: dict[str, Interval]
    champion: dict[str, Interval] | None
    lift: dict[str, Interval]

    def to_json(self) -> str:
        """The evaluation as JSON; undefined numbers are null. `from_json` reads it back."""
        return json.dumps(nan_to_none(asdict(self)), sort_keys=True, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Evaluation":
        """Reads what `to_json` wrote."""
        tree: dict[str, Any] = json.loads(text)
        champion = tree.pop("champion")
        return cls(
            labels=tuple(tree.pop("labels")),
            candidate=_intervals(tree.pop("candidate")),
            champion=None if champion is None else _intervals(champion),
            lift=_intervals(tree.pop("lift")),
            **tree,
        )


def evaluate(
    config: EvaluationConfig,
    labels: Sequence[str],
    heldout: pd.DataFrame,
    candidate: pd.DataFrame,
    champion: pd.DataFrame | None,
) -> Evaluation:
    """Judges the candidate, and the champion beside it, on the held-out rows.

    Args:
        config: What counts as a hit, and how to resample.
        labels: Heads to judge, the first of them ``save``.
        heldout: One row an impression: request_id, user_id and pin_id, int64, and one bool column a label.
        candidate: Predicted probabilities, one float column a label, with the index of ``heldout``.
        champion: The same of the champion, or None.

    Returns:
        The evaluation. Metrics that are undefined on these rows (an AUC of a head without positives) are NaN.

    Raises:
        InputError: There are no rows, a column is missing, a slate has two users, or a prediction is not a probability.
    """
    _check_heldout(heldout, labels)
    users, num_users = _index(heldout["user_id"])
    slates, num_slates = _index(heldout["request_id"])
    models = {"candidate": candidate} | ({} if champion is None else {"champion": champion})
    prepared = {}
    for model, predictions in models.items():
        _check_predictions(predictions, heldout, labels, model)
        for label in labels:
            of_head = statistics(
                predictions[label].to_numpy(), heldout[label].to_numpy(), slates, users, label=label, k=config.hit_k
            )
            prepared.update({f"{model}/{key}": statistic for key, statistic in of_head.items()})
    draws = bootstrap(prepared, config, num_users=num_users, num_rows=len(heldout))
    lifted = [f"{label}_{metric}" for label in labels for metric in (f"hit{config.hit_k}", "auc")]
    return Evaluation(
        labels=tuple(labels),
        hit_k=config.hit_k,
        confidence=config.confidence,
        num_rows=len(heldout),
        num_slates=num_slates,
        num_users=num_users,
        candidate=_own_intervals(draws, "candidate", config),
        champion=None if champion is None else _own_intervals(draws, "champion", config),
        lift={}
        if champion is None
        else {
            key: lift_interval(draws[f"candidate/{key}"], draws[f"champion/{key}"], config.confidence) for key in lifted
        },
    )


def nan_to_none(value: Any) -> Any:
    """A copy of a JSON tree with every float that JSON cannot hold (NaN, infinities) as None."""
    if isinstance(value, Mapping):
        return {key: nan_to_none(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [nan_to_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _intervals(tree: Mapping[str, Mapping[str, float | None]]) -> dict[str, Interval]:
    return {
        key: Interval(**{end: float("nan") if number is None else number for end, number in interval.items()})
        for key, interval in tree.items()
    }


def _own_intervals(draws: Mapping[str, Floats], model: str, config: EvaluationConfig) -> dict[str, Interval]:
    return {
        key.removeprefix(f"{model}/"): percentile_interval(values, config.confidence)
        for key, values in draws.items()
        if key.startswith(f"{model}/")
    }


def _index(ids: "pd.Series[int]") -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """The ids as 0 to N - 1, int64 [R], and N."""
    codes, uniques = pd.factorize(ids, sort=True)
    return codes.astype(np.int64), len(uniques)


def _check_heldout(heldout: pd.DataFrame, labels: Sequence[str]) -> None:
    missing = [column for column in (*_KEY_COLUMNS, *labels) if column not in heldout.columns]
    if missing:
        raise InputError(f"held-out rows: no column '{missing[0]}'; prepare the day again with this recipe's labels")
    if heldout.empty:
        raise InputError("held-out rows: there are none; choose a --date whose day before has logs")
    users_per_slate = heldout.groupby("request_id")["user_id"].nunique()
    if (users_per_slate > 1).any():
        slate = users_per_slate.idxmax()
        raise InputError(f"held-out rows: request_id {slate} has several user_id; a slate is shown to one user")


def _check_predictions(predictions: pd.DataFrame, heldout: pd.DataFrame, labels: Sequence[str], model: str) -> None:
    missing = [label for label in labels if label not in predictions.columns]
    if missing:
        raise InputError(f"{model}: predicts no '{missing[0]}'; it was trained on other labels than the recipe's")
    if not predictions.index.equals(heldout.index):
        raise InputError(f"{model}: its predictions are not of the held-out rows; score exactly those, in their order")
    for label in labels:
        values = predictions[label].to_numpy(dtype=np.float64)
        if not ((values >= 0) & (values <= 1)).all():
            raise InputError(f"{model}: column '{label}' holds no probabilities; did training diverge? lower its rate")
