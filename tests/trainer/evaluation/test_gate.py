import dataclasses
import math

import pytest

from trainer.evaluation.gate import Decision, decide
from trainer.evaluation.lift import Interval
from trainer.evaluation.report import Evaluation
from trainer.recipe import GateConfig

GATE = GateConfig(min_save_lift_low=0.0, min_auc_low=0.55, calibration_range=(0.8, 1.25))
OWN = {"save_auc": Interval(0.6, 0.58, 0.62), "save_calibration": Interval(1.0, 0.9, 1.1)}


def evaluation(
    lift: Interval | None = None, auc: Interval | None = None, calibration: Interval | None = None
) -> Evaluation:
    own = OWN | ({"save_auc": auc} if auc else {}) | ({"save_calibration": calibration} if calibration else {})
    return Evaluation(
        labels=("save",),
        hit_k=3,
        confidence=0.95,
        num_rows=100,
        num_slates=20,
        num_users=10,
        candidate=own,
        champion=OWN if lift else None,
        lift={"save_hit3": lift} if lift else {},
    )


def test_the_first_candidate_is_promoted_on_its_own_checks() -> None:
    decision = decide(GATE, evaluation())
    assert decision.decision == "promote"
    assert any("is the first" in reason for reason in decision.reasons)


def test_the_first_candidate_is_held_when_its_own_checks_fail() -> None:
    assert decide(GATE, evaluation(auc=Interval(0.6, 0.54, 0.66))).decision == "hold"
    assert decide(GATE, evaluation(calibration=Interval(1.2, 1.1, 1.3))).decision == "hold"
    assert decide(GATE, evaluation(calibration=Interval(0.82, 0.79, 0.85))).decision == "hold"


def test_the_gate_reads_the_lower_end_not_the_point() -> None:
    assert decide(GATE, evaluation(Interval(0.012, -0.001, 0.025))).decision == "hold"
    assert decide(GATE, evaluation(Interval(0.012, 0.001, 0.023))).decision == "promote"
    # A point below the threshold does not matter either, were an interval ever so skewed.
    assert decide(GATE, evaluation(Interval(-0.01, 0.001, 0.02))).decision == "promote"


def test_a_retrain_that_changed_nothing_is_held() -> None:
    assert decide(GATE, evaluation(Interval(0.0, 0.0, 0.0))).decision == "hold"


def test_a_lift_does_not_excuse_a_bad_calibration() -> None:
    good_lift = Interval(0.012, 0.001, 0.023)
    assert decide(GATE, evaluation(good_lift, calibration=Interval(2.0, 1.9, 2.1))).decision == "hold"


@pytest.mark.parametrize("place", ["lift", "auc", "calibration"])
def test_an_undefined_end_passes_no_check(place: str) -> None:
    undefined = Interval(0.6, math.nan, math.nan)
    given = {"lift": Interval(0.012, 0.001, 0.023)} | {place: undefined}
    assert decide(GATE, evaluation(**given)).decision == "hold"


def test_each_reason_is_a_sentence_with_numbers_and_threshold() -> None:
    gate = dataclasses.replace(GATE, min_save_lift_low=0.005)
    reasons = decide(gate, evaluation(Interval(0.012, -0.001, 0.025))).reasons
    assert len(reasons) == 3
    assert all(reason.endswith(".") for reason in reasons)
    auc, calibration, lift = reasons
    assert "0.5800" in auc and "0.5500" in auc and "is above" in auc
    assert "0.900 to 1.100" in calibration and "0.800 to 1.250" in calibration
    assert "-0.10%" in lift and "+0.50%" in lift and "is not above" in lift


def test_a_decision_survives_json() -> None:
    decision = Decision("hold", ("One.", "Two."))
    assert Decision.from_json(decision.to_json()) == decision
