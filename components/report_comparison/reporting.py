"""Judging the cases of a comparison and writing its report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from components.comparison import BASELINE, Case, Comparison
from components.heldout import read_rows
from components.report_comparison.costs import costs_of
from trainer.evaluation.report import nan_to_none
from trainer.evaluation.side_by_side import Judgement, judge_arms
from trainer.evaluation.slices import Slice, slices_of
from trainer.registry.comparison_page import write_page
from trainer.registry.comparison_plots import draw_all
from trainer.registry.comparisons import experiment_name, log_report
from trainer.storage.publishing import write_json
from trainer.windows.manifest import Partition, WindowManifest, load_window


@dataclass(frozen=True, kw_only=True)
class _Result:
    """What a case left: scores of the held-out rows and the history of its training."""

    case: Case
    predictions: pd.DataFrame
    history: dict[str, Any]


def report(
    comparison: Comparison, window: str, backbone: str, tracking_uri: str, parent: str, results: Sequence[str]
) -> None:
    """Writes ``report.html``, its figures and ``comparison.json``, and logs them to the parent run, which ends.

    Args:
        comparison: What was compared.
        window: Path of the longest window's manifest.
        backbone: Version of the backbone.
        tracking_uri: Where MLflow keeps runs and models.
        parent: ID of the comparison's MLflow run.
        results: The folder of each case, in the order of the cases.
    """
    read = [_read(case, Path(folder)) for case, folder in zip(comparison.cases, results, strict=True)]
    content = _content(comparison, load_window(window), backbone, parent, read)
    folder = comparison.report_folder
    write_json(folder / "comparison.json", content)
    histories = [(*_place(result.case), result.history) for result in read]
    write_page(content, draw_all(content, histories, folder), folder / "report.html")
    log_report(content, folder, parent, tracking_uri)


def _read(case: Case, folder: Path) -> _Result:
    return _Result(
        case=case,
        predictions=pd.read_parquet(folder / "predictions.parquet"),
        history=json.loads((folder / "history.json").read_text()),
    )


def _place(case: Case) -> tuple[str, int, int]:
    return case.arm, case.window_days, case.seed


def _content(
    comparison: Comparison, window: WindowManifest, backbone: str, parent: str, results: Sequence[_Result]
) -> dict[str, Any]:
    run, rows = comparison.run, results[0].predictions
    assert window.heldout is not None, "a comparison's window is assembled with one"
    arms, slices, windows = [], [], []
    for window_days in comparison.window_lengths:
        days = window.days[-window_days:]
        of_length = [result for result in results if result.case.window_days == window_days]
        length_slices = slices_of(_ids(days), rows)
        judged = judge_arms(run.recipe.evaluation, rows, _scores(comparison, of_length), length_slices, BASELINE)
        windows.append(_window_entry(days))
        arms += [
            _arm_entry(arm, window_days, judgement, [result for result in of_length if result.case.arm == arm])
            for arm, judgement in judged.items()
        ]
        slices += _slice_entries(window_days, judged, length_slices, rows)
    content: dict[str, Any] = nan_to_none(
        {
            "recipe": run.recipe.name,
            "date": run.date.isoformat(),
            "baseline": BASELINE,
            "seeds": comparison.seeds,
            "confidence": run.recipe.evaluation.confidence,
            "hit_k": run.recipe.evaluation.hit_k,
            "heldout": {
                "day": window.heldout.day.isoformat(),
                "rows": len(rows),
                "slates": rows["request_id"].nunique(),
                "users": rows["user_id"].nunique(),
                "saves": int(rows["save"].sum()),
            },
            "backbone": {"model": run.recipe.backbone_name, "version": backbone},
            "mlflow": {"experiment": experiment_name(run.recipe), "run_id": parent},
            "windows": windows,
            "arms": arms,
            "slices": slices,
        }
    )
    return content


def _scores(comparison: Comparison, results: Sequence[_Result]) -> dict[str, dict[int, Any]]:
    by_case = {(result.case.arm, result.case.seed): result.predictions["score"] for result in results}
    return {
        arm: {seed: by_case[arm, seed].to_numpy(dtype=np.float64) for seed in comparison.seeds}
        for arm in comparison.arms
    }


def _ids(days: Sequence[Partition]) -> dict[str, Any]:
    names = ["user_id", "pin_id"]
    rows = pd.concat([read_rows(day, names) for day in days])
    return {name: rows[name].to_numpy() for name in names}


def _window_entry(days: Sequence[Partition]) -> dict[str, Any]:
    return {
        "days": len(days),
        "first_day": days[0].day.isoformat(),
        "last_day": days[-1].day.isoformat(),
        "rows": sum(day.num_rows for day in days),
    }


def _arm_entry(arm: str, window_days: int, judgement: Judgement, results: Sequence[_Result]) -> dict[str, Any]:
    return {
        "arm": arm,
        "window_days": window_days,
        "metrics": _plain(judgement.metrics),
        "lift": _plain(judgement.lift),
        "seeds": [
            {"seed": seed, "metrics": metrics, "lift": judgement.lift_of_seed.get(seed, {})}
            for seed, metrics in judgement.of_seed.items()
        ],
        **costs_of({result.case.seed: result.history for result in results}),
    }


def _slice_entries(
    window_days: int, judged: Mapping[str, Judgement], slices: Sequence[Slice], rows: pd.DataFrame
) -> list[dict[str, Any]]:
    return [
        {
            "dimension": slice_.dimension,
            "slice": slice_.name,
            "window_days": window_days,
            "rows": int(slice_.rows_R.sum()),
            "saves": int(rows["save"].to_numpy()[slice_.rows_R].sum()),
            "arm": arm,
            "lift": _plain(judgement.slices[number]),
        }
        for number, slice_ in enumerate(slices)
        for arm, judgement in judged.items()
        if judgement.slices
    ]


def _plain(intervals: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {name: asdict(interval) for name, interval in intervals.items()}
