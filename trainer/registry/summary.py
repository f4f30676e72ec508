"""The summary of a retrain: the record that `thawline retrain` prints, scripts read and a repeated run returns."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainer.evaluation.gate import Decision
from trainer.evaluation.lift import Interval
from trainer.evaluation.report import Evaluation, nan_to_none
from trainer.recipe import Recipe
from trainer.windows.manifest import WindowManifest
from trainer.windows.quality.record import QualityRecord


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """What one step of the DAG took.

    Attributes:
        duration_s: Seconds of wall clock.
        peak_rss_mib: Most resident memory, children included, in MiB.
    """

    duration_s: float
    peak_rss_mib: float


def summarize(
    recipe: Recipe,
    version: str,
    window: WindowManifest,
    evaluation: Evaluation,
    decision: Decision,
    steps: Mapping[str, StepCost],
    quality: QualityRecord,
) -> dict[str, Any]:
    """The summary as plain JSON; undefined numbers are None.

    Returns:
        ``model``, ``version``, ``decision``, ``reasons``, ``window`` (``days``, ``first_day``, ``last_day``,
        ``heldout_day``, ``rows`` to train on), ``quality`` (``verdict`` on its data, how many ``findings``, their
        ``page``), ``metrics`` (the candidate's points by name), ``champion_metrics`` (the champion's on the same rows,
        or None), ``lift`` (each ``{point, low, high}``, fractions), ``duration_s`` by step, ``peak_rss_mib`` of the
        largest step.
    """
    champion = evaluation.champion
    summary = {
        "model": recipe.model_name,
        "version": version,
        "decision": decision.decision,
        "reasons": list(decision.reasons),
        "window": {
            "days": len(window.days),
            "first_day": window.first_day.isoformat(),
            "last_day": window.last_day.isoformat(),
            "heldout_day": window.heldout.day.isoformat() if window.heldout else None,
            "rows": window.num_rows,
        },
        "quality": quality.to_summary(),
        "metrics": _points(evaluation.candidate),
        "champion_metrics": None if champion is None else _points(champion),
        "lift": {name: asdict(interval) for name, interval in evaluation.lift.items()},
        "duration_s": {name: cost.duration_s for name, cost in steps.items()},
        "peak_rss_mib": max((cost.peak_rss_mib for cost in steps.values()), default=None),
    }
    plain: dict[str, Any] = nan_to_none(summary)
    return plain


def _points(metrics: Mapping[str, Interval]) -> dict[str, float]:
    return {name: interval.point for name, interval in metrics.items()}
