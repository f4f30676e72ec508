"""The gate: whether a candidate becomes champion, and why."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from trainer.evaluation.report import Evaluation
from trainer.recipe import GateConfig


@dataclass(frozen=True)
class Decision:
    """What the gate says.

    Attributes:
        decision: ``promote`` makes the candidate champion; ``hold`` keeps the champion, or none.
        reasons: One sentence a check, each with its numbers and its threshold.
    """

    decision: Literal["promote", "hold"]
    reasons: tuple[str, ...]

    def to_json(self) -> str:
        """The decision as JSON; `from_json` reads it back."""
        return json.dumps(asdict(self), sort_keys=True, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Decision":
        """Reads what `to_json` wrote."""
        tree: dict[str, Any] = json.loads(text)
        return cls(decision=tree["decision"], reasons=tuple(tree["reasons"]))


def decide(gate: GateConfig, evaluation: Evaluation) -> Decision:
    """Promotes a candidate whose every check holds, judged by the ends of intervals, never by points.

    A lower end must lie above its threshold, not on it: a retrain that changed nothing has a lift of exactly zero and
    is no reason to switch. An undefined end passes no check. Without a champion the lift is not asked for.

    Args:
        gate: The thresholds.
        evaluation: The candidate's own metrics, and its lift when there is a champion.

    Returns:
        The decision with one reason a check, in the order AUC, calibration, lift.
    """
    checks = [_check_auc(gate, evaluation), _check_calibration(gate, evaluation), _check_lift(gate, evaluation)]
    return Decision("promote" if all(passed for passed, _ in checks) else "hold", tuple(reason for _, reason in checks))


def _check_auc(gate: GateConfig, evaluation: Evaluation) -> tuple[bool, str]:
    low = evaluation.candidate["save_auc"].low
    passed = low > gate.min_auc_low
    return passed, (
        f"AUC on save: the lower end {low:.4f} of its {evaluation.confidence:.0%} interval "
        f"{_verdict(passed)} above the threshold {gate.min_auc_low:.4f}."
    )


def _check_calibration(gate: GateConfig, evaluation: Evaluation) -> tuple[bool, str]:
    interval = evaluation.candidate["save_calibration"]
    least, most = gate.calibration_range
    passed = least <= interval.low and interval.high <= most
    return passed, (
        f"Calibration on save: its {evaluation.confidence:.0%} interval {interval.low:.3f} to {interval.high:.3f} "
        f"{_verdict(passed)} within the range {least:.3f} to {most:.3f}."
    )


def _check_lift(gate: GateConfig, evaluation: Evaluation) -> tuple[bool, str]:
    if evaluation.champion is None:
        return True, "There is no champion yet: this candidate is the first, so no lift is asked for."
    interval = evaluation.lift[f"save_hit{evaluation.hit_k}"]
    passed = interval.low > gate.min_save_lift_low
    return passed, (
        f"Save lift (HIT@{evaluation.hit_k}) against the champion: the lower end {interval.low:+.2%} of its "
        f"{evaluation.confidence:.0%} interval, which ends at {interval.high:+.2%}, {_verdict(passed)} above the "
        f"threshold {gate.min_save_lift_low:+.2%}."
    )


def _verdict(passed: bool) -> str:
    return "is" if passed else "is not"
