"""What one MLflow run holds: parameters, curves, the verdict's numbers and its records as files."""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from trainer.evaluation.report import Evaluation
from trainer.recipe import Recipe
from trainer.registry.plots import plot_learning_curves, plot_lift

SUMMARY_FILE = "summary.json"

_MAX_METRICS_A_BATCH = 1000  # MLflow's own limits
_MAX_PARAMS_A_BATCH = 100


def log_numbers(
    client: MlflowClient, run_id: str, recipe: Recipe, history: Mapping[str, Any], evaluation: Evaluation
) -> None:
    """Logs the recipe's fields as parameters, and training and evaluation as metrics.

    Args:
        client: Connection.
        run_id: The run.
        recipe: The recipe of the run.
        history: What training wrote to ``history.json``.
        evaluation: The candidate's evaluation.
    """
    log_parameters(client, run_id, recipe)
    log_metrics(client, run_id, [*training_numbers(history), *_evaluation_numbers(evaluation)])


def log_parameters(client: MlflowClient, run_id: str, recipe: Recipe) -> None:
    """Logs the recipe's fields as parameters, by their dotted names."""
    fields = [Param(key, _as_text(value)) for key, value in _flatten(json.loads(recipe.to_json()))]
    for start in range(0, len(fields), _MAX_PARAMS_A_BATCH):
        client.log_batch(run_id, params=fields[start : start + _MAX_PARAMS_A_BATCH])


def log_metrics(client: MlflowClient, run_id: str, numbers: Iterable[tuple[str, float, int]]) -> None:
    """Logs numbers, given by name, value and step; undefined ones are left out."""
    now_ms = int(time.time() * 1000)
    metrics = [Metric(key, value, now_ms, step) for key, value, step in numbers if _is_number(value)]
    for start in range(0, len(metrics), _MAX_METRICS_A_BATCH):
        client.log_batch(run_id, metrics=metrics[start : start + _MAX_METRICS_A_BATCH])


def training_numbers(history: Mapping[str, Any]) -> Iterator[tuple[str, float, int]]:
    """The metrics of a training: after an epoch with the epoch as step, ``curve/loss`` with the training step."""
    yield from _epoch_numbers(history)
    yield from _curve_numbers(history)


def log_files(
    client: MlflowClient,
    run_id: str,
    records: Mapping[str, str],
    history: Mapping[str, Any],
    evaluation: Evaluation,
) -> None:
    """Logs the records and the figures, ``plots/learning_curves.png`` and, against a champion, ``plots/lift.png``.

    Args:
        client: Connection.
        run_id: The run.
        records: Texts by file name.
        history: What training wrote to ``history.json``.
        evaluation: The candidate's evaluation.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, text in records.items():
            (folder / name).write_text(text)
        plots = folder / "plots"
        plots.mkdir()
        plot_learning_curves(history, plots / "learning_curves.png")
        if evaluation.lift:
            plot_lift(evaluation.lift, evaluation.confidence, plots / "lift.png")
        client.log_artifacts(run_id, str(folder))


def read_summary(client: MlflowClient, run_id: str) -> dict[str, Any]:
    """The summary that a run was logged with."""
    with TemporaryDirectory() as temporary:
        summary: dict[str, Any] = json.loads(
            Path(client.download_artifacts(run_id, SUMMARY_FILE, temporary)).read_text()
        )
    return summary


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _epoch_numbers(history: Mapping[str, Any]) -> Iterator[tuple[str, float, int]]:
    for epoch in history["epochs"]:
        step = epoch["epoch"]
        yield "train/loss", epoch["loss"], step
        for name in ("rows_per_s", "duration_s", "num_row_gradients", "reader_wait_s"):
            yield f"train/{name}", epoch[name], step
        for name, value in epoch.get("losses", {}).items():
            yield f"train/{name}_loss", value, step
        for name, value in (epoch.get("heldout") or {}).items():
            yield f"heldout/{name}", value, step
        for name, value in epoch["lookup"].items():
            yield f"lookup/{name}", value, step
        for name, value in epoch["canary"].items():
            yield f"canary/{name}", value, step


def _curve_numbers(history: Mapping[str, Any]) -> Iterator[tuple[str, float, int]]:
    steps_an_epoch = history["num_steps"] / max(1, len(history["epochs"]))
    for point in history["curve"]:
        yield "curve/loss", point["loss"], round(point["epoch"] * steps_an_epoch)


def _evaluation_numbers(evaluation: Evaluation) -> Iterator[tuple[str, float, int]]:
    groups = {"candidate": evaluation.candidate, "champion": evaluation.champion or {}, "lift": evaluation.lift}
    for group, intervals in groups.items():
        for name, interval in intervals.items():
            yield f"{group}/{name}", interval.point, 0
            yield f"{group}/{name}_low", interval.low, 0
            yield f"{group}/{name}_high", interval.high, 0


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
