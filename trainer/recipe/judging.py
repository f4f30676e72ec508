"""Sections on judging a candidate: evaluation and gate."""

from pydantic.dataclasses import dataclass

from trainer.recipe.types import STRICT_KEYS, Fraction, PositiveFloat, PositiveInt


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class EvaluationConfig:
    """How candidate and champion are compared on the held-out day.

    Attributes:
        hit_k: Pins of a slate that count as its top.
        num_bootstrap: Resamples of users for an interval.
        confidence: Coverage of the intervals.
        seed: Seed of the resamples.
    """

    hit_k: PositiveInt = 3
    num_bootstrap: PositiveInt = 1000
    confidence: Fraction = 0.95
    seed: int = 0


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class GateConfig:
    """What a candidate must show before it becomes champion; the gate reads intervals, never points.

    Attributes:
        min_save_lift_low: The lower end of the save lift's interval against the champion must lie above it.
        min_auc_low: The lower end of the candidate's own AUC interval on ``save`` must lie above it.
        calibration_range: The candidate's whole interval of predicted over observed saves must lie within it.
    """

    min_save_lift_low: float = 0.0
    min_auc_low: Fraction = 0.5
    calibration_range: tuple[PositiveFloat, PositiveFloat] = (0.8, 1.25)
