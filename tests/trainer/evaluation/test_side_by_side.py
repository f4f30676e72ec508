import numpy as np
import pandas as pd
import pytest

from trainer.errors import InputError
from trainer.evaluation.metrics import Floats, auc, hit_at_k
from trainer.evaluation.report import evaluate
from trainer.evaluation.side_by_side import judge_arms
from trainer.evaluation.slices import Slice
from trainer.recipe import EvaluationConfig

CONFIG = EvaluationConfig(num_bootstrap=40)
NUM_ROWS = 240


@pytest.fixture
def heldout() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    slates = np.arange(NUM_ROWS) // 6
    save = rng.random(NUM_ROWS) < 0.4
    return pd.DataFrame({"request_id": slates, "user_id": slates // 2, "pin_id": np.arange(NUM_ROWS), "save": save})


def scores_of(heldout: pd.DataFrame, seed: int, skill: float) -> Floats:
    noise = np.random.default_rng(seed).random(NUM_ROWS)
    scores: Floats = (1 - skill) * noise + skill * heldout["save"].to_numpy()
    return scores


def test_one_seed_is_judged_as_a_candidate_against_a_champion(heldout: pd.DataFrame) -> None:
    mine, base = scores_of(heldout, 1, 0.3), scores_of(heldout, 2, 0.2)
    judged = judge_arms(CONFIG, heldout, {"base": {0: base}, "mine": {0: mine}}, [], "base")
    wanted = evaluate(CONFIG, ["save"], heldout, pd.DataFrame({"save": mine}), pd.DataFrame({"save": base}))
    assert judged["mine"].metrics == wanted.candidate
    assert judged["mine"].lift == wanted.lift
    assert judged["base"].lift == {} and judged["base"].slices == ()


def test_seeds_are_averaged_before_the_lift_is_taken(heldout: pd.DataFrame) -> None:
    scores = {
        "base": {seed: scores_of(heldout, seed, 0.2) for seed in (0, 1)},
        "mine": {seed: scores_of(heldout, seed + 10, 0.3) for seed in (0, 1)},
    }
    judged = judge_arms(CONFIG, heldout, scores, [], "base")["mine"]
    aucs = {arm: [auc(one, heldout["save"]) for one in of_arm.values()] for arm, of_arm in scores.items()}
    assert judged.lift["save_auc"].point == pytest.approx(np.mean(aucs["mine"]) / np.mean(aucs["base"]) - 1)
    assert judged.lift["save_auc"].low < judged.lift["save_auc"].point < judged.lift["save_auc"].high
    of_seeds = [judged.lift_of_seed[seed]["save_auc"] for seed in (0, 1)]
    assert of_seeds == pytest.approx([mine / base - 1 for mine, base in zip(*reversed(aucs.values()), strict=True)])
    assert judged.of_seed[1]["save_auc"] == pytest.approx(aucs["mine"][1])


def test_the_same_scores_have_no_lift(heldout: pd.DataFrame) -> None:
    scores = scores_of(heldout, 1, 0.2)
    lift = judge_arms(CONFIG, heldout, {"base": {0: scores}, "mine": {0: scores}}, [], "base")["mine"].lift
    assert all((interval.point, interval.low, interval.high) == (0.0, 0.0, 0.0) for interval in lift.values())


def test_a_slice_orders_its_own_pairs_and_counts_its_own_saves(heldout: pd.DataFrame) -> None:
    rows = np.arange(NUM_ROWS) % 3 == 0
    mine, base = scores_of(heldout, 1, 0.3), scores_of(heldout, 2, 0.2)
    slices = [
        Slice(dimension="pin_age", name="new", rows_R=rows),
        Slice(dimension="pin_age", name="old", rows_R=np.ones(NUM_ROWS, dtype=bool)),
    ]
    judged = judge_arms(CONFIG, heldout, {"base": {0: base}, "mine": {0: mine}}, slices, "base")["mine"]
    new, everything = judged.slices
    labels = heldout["save"].to_numpy()
    assert everything == judged.lift
    assert new["save_auc"].point == pytest.approx(auc(mine[rows], labels[rows]) / auc(base[rows], labels[rows]) - 1)
    hits = [hit_at_k(scores, labels & rows, heldout["request_id"], CONFIG.hit_k) for scores in (mine, base)]
    assert new["save_hit3"].point == pytest.approx(hits[0] / hits[1] - 1)


def test_what_is_undefined_in_a_slice_is_nan(heldout: pd.DataFrame) -> None:
    rows = ~heldout["save"].to_numpy()
    slices = [Slice(dimension="pin_age", name="new", rows_R=rows)]
    scores = {"base": {0: scores_of(heldout, 1, 0.2)}, "mine": {0: scores_of(heldout, 2, 0.2)}}
    (only,) = judge_arms(CONFIG, heldout, scores, slices, "base")["mine"].slices
    assert all(np.isnan([interval.point, interval.low, interval.high]).all() for interval in only.values())


def test_scores_that_are_no_probabilities_are_told(heldout: pd.DataFrame) -> None:
    scores = np.full(NUM_ROWS, np.nan)
    with pytest.raises(InputError, match=r"arm 'mine', seed 3.*diverge"):
        judge_arms(CONFIG, heldout, {"base": {3: np.full(NUM_ROWS, 0.5)}, "mine": {3: scores}}, [], "base")
