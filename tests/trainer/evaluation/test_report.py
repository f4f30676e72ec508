import json
import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from trainer.errors import InputError
from trainer.evaluation.metrics import auc, calibration, hit_at_k, log_loss
from trainer.evaluation.report import Evaluation, evaluate
from trainer.recipe import EvaluationConfig

CONFIG = EvaluationConfig(num_bootstrap=100)
LABELS = ("save", "click")
Spoil = Callable[[pd.DataFrame, pd.DataFrame], tuple[pd.DataFrame, pd.DataFrame]]


def heldout(num_slates: int = 120) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    slates = np.repeat(np.arange(num_slates), 5)
    taste = generator.random(len(slates))
    return pd.DataFrame(
        {
            "request_id": slates + 10**12,
            "user_id": slates % 40 + 7_000_000,
            "pin_id": generator.integers(0, 10**9, len(slates)),
            "save": generator.random(len(slates)) < 0.4 * taste,
            "click": generator.random(len(slates)) < 0.8 * taste,
            "taste": taste,
        },
        index=np.arange(len(slates)) + 50,
    )


def predictions(rows: pd.DataFrame, noise: float, seed: int) -> pd.DataFrame:
    blurred = rows["taste"] + np.random.default_rng(seed).normal(scale=noise, size=len(rows))
    return pd.DataFrame({"save": (0.4 * blurred).clip(0, 1), "click": (0.8 * blurred).clip(0, 1)})


def test_metrics_are_those_of_the_rows_for_both_models() -> None:
    rows = heldout()
    candidate, champion = predictions(rows, 0.05, seed=1), predictions(rows, 1.0, seed=2)
    evaluation = evaluate(CONFIG, LABELS, rows, candidate, champion)
    assert (evaluation.num_rows, evaluation.num_slates, evaluation.num_users) == (600, 120, 40)
    assert evaluation.champion is not None
    for model, found in ((candidate, evaluation.candidate), (champion, evaluation.champion)):
        for label in LABELS:
            assert found[f"{label}_hit3"].point == pytest.approx(
                hit_at_k(model[label], rows[label], rows["request_id"], 3)
            )
            assert found[f"{label}_auc"].point == pytest.approx(auc(model[label], rows[label]))
            assert found[f"{label}_log_loss"].point == pytest.approx(log_loss(model[label], rows[label]))
            assert found[f"{label}_calibration"].point == pytest.approx(calibration(model[label], rows[label]))


def test_the_better_model_has_a_lift_above_zero_and_the_lift_is_their_ratio() -> None:
    rows = heldout()
    evaluation = evaluate(CONFIG, LABELS, rows, predictions(rows, 0.05, seed=1), predictions(rows, 1.0, seed=2))
    assert evaluation.champion is not None
    assert set(evaluation.lift) == {"save_hit3", "save_auc", "click_hit3", "click_auc"}
    ratio = evaluation.candidate["save_auc"].point / evaluation.champion["save_auc"].point
    assert evaluation.lift["save_auc"].point == pytest.approx(ratio - 1)
    assert evaluation.lift["save_auc"].low > 0
    assert evaluation.lift["click_hit3"].low > 0


def test_the_order_of_rows_changes_nothing_but_rounding() -> None:
    rows = heldout()
    candidate, champion = predictions(rows, 0.05, seed=1), predictions(rows, 1.0, seed=2)
    order = np.random.default_rng(3).permutation(len(rows))
    one = evaluate(CONFIG, LABELS, rows, candidate, champion)
    two = evaluate(CONFIG, LABELS, rows.iloc[order], candidate.iloc[order], champion.iloc[order])
    for key, interval in one.lift.items():
        assert two.lift[key].low == pytest.approx(interval.low)
        assert two.lift[key].high == pytest.approx(interval.high)


def test_without_a_champion_there_is_no_lift() -> None:
    rows = heldout()
    evaluation = evaluate(CONFIG, LABELS, rows, predictions(rows, 0.05, seed=1), None)
    assert evaluation.champion is None and evaluation.lift == {}


def test_json_keeps_everything_and_is_strict_about_undefined_numbers() -> None:
    rows = heldout()
    rows["click"] = False
    candidate = predictions(rows, 0.05, seed=1)
    evaluation = evaluate(CONFIG, LABELS, rows, candidate, candidate)
    assert math.isnan(evaluation.candidate["click_auc"].point)
    text = evaluation.to_json()
    assert json.loads(text)["candidate"]["click_auc"] == {"point": None, "low": None, "high": None}
    again = Evaluation.from_json(text)
    assert again.to_json() == text
    assert again.lift["save_auc"] == evaluation.lift["save_auc"]
    assert math.isnan(again.candidate["click_auc"].low)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rows, predicted: (rows.drop(columns="click"), predicted), "no column 'click'"),
        (lambda rows, predicted: (rows.iloc[:0], predicted.iloc[:0]), "there are none"),
        (lambda rows, predicted: (rows.assign(user_id=range(len(rows))), predicted), "several user_id"),
        (lambda rows, predicted: (rows, predicted[["save"]]), "predicts no 'click'"),
        (lambda rows, predicted: (rows, predicted.iloc[::-1]), "not of the held-out rows"),
        (lambda rows, predicted: (rows, predicted.assign(save=np.nan)), "holds no probabilities"),
        (lambda rows, predicted: (rows, predicted + 1), "holds no probabilities"),
    ],
)
def test_bad_input_is_told_in_one_line(spoil: Spoil, message: str) -> None:
    rows = heldout()
    bad_rows, bad_predictions = spoil(rows, predictions(rows, 0.05, seed=1))
    with pytest.raises(InputError, match=message) as caught:
        evaluate(CONFIG, LABELS, bad_rows, bad_predictions, None)
    assert "\n" not in str(caught.value)
