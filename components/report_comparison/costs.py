"""What an arm's trainings took and what their canaries said, from their histories."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any


def costs_of(histories: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and where the guard stepped in.

    Args:
        histories: What training wrote to ``history.json``, by seed.

    Returns:
        ``epochs``; ``thaw_epoch`` (None where tables never thaw, or always adapt); ``train_s``, seconds of passes;
        ``num_row_gradients``, gradients of rows sent to the tables, of rank 0; ``self_influence`` as the last pass
        began, a share of the loss; ``refrozen_at``, the epoch after which the guard froze the tables, by seed.
    """
    runs = list(histories.values())
    return {
        "epochs": len(runs[0]["epochs"]),
        "thaw_epoch": runs[0]["thaw_epoch"],
        "train_s": round(fmean(_sum(run, "duration_s") for run in runs), 2),
        "num_row_gradients": round(fmean(_sum(run, "num_row_gradients") for run in runs)),
        "self_influence": fmean(map(_self_influence, runs)),
        "refrozen_at": {
            str(seed): run["refrozen_at"] for seed, run in histories.items() if run["refrozen_at"] is not None
        },
    }


def _sum(history: Mapping[str, Any], name: str) -> float:
    return sum(float(epoch[name]) for epoch in history["epochs"])


def _self_influence(history: Mapping[str, Any]) -> float:
    """The reading before the last pass; before a first pass no row has met a label, and it is zero."""
    earlier = history["epochs"][:-1]
    return float(earlier[-1]["canary"]["self_influence"]) if earlier else 0.0
