"""Registered rankers: one version a retrain, and the aliases ``candidate`` and ``champion``."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from trainer.errors import InputError
from trainer.evaluation.gate import Decision
from trainer.evaluation.report import Evaluation
from trainer.recipe import Recipe
from trainer.registry import package
from trainer.registry.runs import SUMMARY_FILE, log_files, log_numbers, read_summary
from trainer.registry.summary import StepCost, summarize
from trainer.registry.tracking import (
    add_version,
    connect,
    ensure_experiment,
    fetch_version,
    find_experiment,
    find_model,
)
from trainer.registry.windows import WINDOW_TAG
from trainer.storage.publishing import read_text
from trainer.windows.manifest import WindowManifest, load_window
from trainer.windows.quality.record import QualityRecord

CHAMPION = "champion"
CANDIDATE = "candidate"

_RUN_KEY = "run_key"
_FINISHED = "FINISHED"


def find_finished(recipe: Recipe, run_key: str, tracking_uri: str) -> dict[str, Any] | None:
    """The summary of the finished retrain with that key, or None.

    A retrain counts as finished while its registered version exists; one that was interrupted does not.

    Args:
        recipe: The recipe of the run.
        run_key: Identity of the retrain: the same key means the same inputs.
        tracking_uri: Where MLflow is.
    """
    client = connect(tracking_uri)
    for run in _runs(client, recipe, run_key):
        if run.info.status == _FINISHED and _versions_of(client, recipe, run.info.run_id):
            return read_summary(client, run.info.run_id)
    return None


def fetch_champion(recipe: Recipe, tracking_uri: str, out: str) -> tuple[str, str] | None:
    """Copies the champion's model folder to this machine.

    Args:
        recipe: The recipe of the run.
        tracking_uri: Where MLflow is.
        out: Folder to copy into.

    Returns:
        The champion's version, and the folder that `trainer.serving.Scorer.load` reads; None without a champion.
    """
    client = connect(tracking_uri)
    version = _champion(client, recipe)
    if version is None:
        return None
    return version, fetch_version(client, recipe.model_name, version, package.MODEL_FOLDER, out)


def register_candidate(
    recipe: Recipe,
    date: date,
    window_path: str,
    training_dir: str,
    evaluation: Evaluation,
    decision: Decision,
    backbone_version: str,
    run_key: str,
    steps: Mapping[str, StepCost],
    quality: QualityRecord,
    tracking_uri: str,
) -> dict[str, Any]:
    """Records a retrain as one MLflow run and registers its model; moves the aliases as decided.

    Safe to repeat: a key that is finished registers nothing again, and what an interrupted call with that key left
    behind is removed first, or completed when it had already moved ``champion``. Two calls with one key must not run
    at the same time.

    Args:
        recipe: The recipe of the run; names experiment and model.
        date: UTC day of the retrain.
        window_path: Manifest of the window.
        training_dir: Holds ``model/`` and ``history.json``, and ``trace.json`` where steps were traced.
        evaluation: Candidate and champion on the held-out day.
        decision: What the gate said to it.
        backbone_version: Version of the backbone that training started from.
        run_key: Identity of the retrain.
        steps: What each step took.
        quality: What the checks of the window came to.
        tracking_uri: Where MLflow is.

    Returns:
        The summary; see `trainer.registry.summary.summarize`.

    Raises:
        InputError: Another retrain made a first champion after this candidate was judged without one.
    """
    summary = find_finished(recipe, run_key, tracking_uri)
    client = connect(tracking_uri)
    for run in [] if summary else _runs(client, recipe, run_key):
        summary = _settle(client, recipe, run) or summary
    if summary is not None:
        return summary
    previous = _champion(client, recipe)
    if previous is not None and evaluation.champion is None:
        raise InputError(f"model '{recipe.model_name}': version {previous} became champion meanwhile; run again")
    window = load_window(window_path)
    tags = {
        "date": date.isoformat(),
        _RUN_KEY: run_key,
        "arm": recipe.thaw.arm,
        "backbone_version": backbone_version,
        "decision": decision.decision,
        "data_verdict": quality.verdict,
        WINDOW_TAG: window.digest,
        "previous_champion": previous or "",
    }
    experiment_id = ensure_experiment(client, recipe.model_name)
    run = client.create_run(experiment_id, run_name=f"{date.isoformat()} {recipe.thaw.arm}", tags=tags)
    try:
        history = json.loads((Path(training_dir) / "history.json").read_text())
        log_numbers(client, run.info.run_id, recipe, history, evaluation)
        version = _register_model(client, recipe, run, Path(training_dir) / "model", window, decision, tags)
        summary = summarize(recipe, version, window, evaluation, decision, steps, quality)
        records = {
            "recipe.json": recipe.to_json(),
            "window.json": read_text(window_path),
            "history.json": json.dumps(history),
            **_trace(Path(training_dir)),
            **quality.files,
            "evaluation.json": evaluation.to_json(),
            "decision.json": _decision_record(recipe, decision, evaluation, previous),
            SUMMARY_FILE: json.dumps(summary, indent=2, sort_keys=True, allow_nan=False),
        }
        log_files(client, run.info.run_id, records, history, evaluation)
        _move_aliases(client, recipe, version, decision)
        client.set_terminated(run.info.run_id, _FINISHED)
    except BaseException:
        _settle(client, recipe, run)
        raise
    return summary


def _register_model(
    client: MlflowClient,
    recipe: Recipe,
    run: Run,
    model_dir: Path,
    window: WindowManifest,
    decision: Decision,
    tags: Mapping[str, str],
) -> str:
    example = package.input_example(recipe, window.heldout or window.days[-1])
    logged = client.create_logged_model(
        run.info.experiment_id, name=recipe.model_name, source_run_id=run.info.run_id, model_type="ranker"
    )
    with TemporaryDirectory() as temporary:
        packaged = Path(temporary) / "packaged"
        package.save_package(recipe, model_dir, example, logged, packaged)
        client.log_model_artifacts(logged.model_id, str(packaged))
    client.finalize_logged_model(logged.model_id, "READY")
    return add_version(
        client,
        recipe.model_name,
        # A models:/ URI would be looked up at MLflow's process-wide address.
        logged.artifact_location,
        run.info.run_id,
        tags=tags,
        model_id=logged.model_id,
        description=f"{decision.decision}: {' '.join(decision.reasons)}",
    )


def _decision_record(recipe: Recipe, decision: Decision, evaluation: Evaluation, previous: str | None) -> str:
    record = {
        **asdict(decision),
        "thresholds": asdict(recipe.gate),
        "previous_champion": previous,
        "numbers": json.loads(evaluation.to_json()),
    }
    return json.dumps(record, indent=2, sort_keys=True)


def _move_aliases(client: MlflowClient, recipe: Recipe, version: str, decision: Decision) -> None:
    # The champion first: that is the point from which an interrupted call is completed rather than undone.
    if decision.decision == "promote":
        client.set_registered_model_alias(recipe.model_name, CHAMPION, version)
    client.set_registered_model_alias(recipe.model_name, CANDIDATE, version)


def _trace(training: Path) -> dict[str, str]:
    trace = training / "trace.json"
    return {trace.name: trace.read_text()} if trace.exists() else {}


def _settle(client: MlflowClient, recipe: Recipe, run: Run) -> dict[str, Any] | None:
    """Removes an interrupted run and what it registered; completes it, and returns its summary, if it is champion."""
    run_id = run.info.run_id
    versions = _versions_of(client, recipe, run_id)
    if _champion(client, recipe) in versions:
        client.set_registered_model_alias(recipe.model_name, CANDIDATE, versions[0])
        client.set_terminated(run_id, _FINISHED)
        return read_summary(client, run_id)
    for version in versions:
        client.delete_model_version(recipe.model_name, version)
    for logged in client.search_logged_models([run.info.experiment_id], filter_string=f"source_run_id = '{run_id}'"):
        client.delete_logged_model(logged.model_id)
    client.delete_run(run_id)
    return None


def _runs(client: MlflowClient, recipe: Recipe, run_key: str) -> list[Run]:
    experiment_id = find_experiment(client, recipe.model_name)
    if experiment_id is None:
        return []
    return list(client.search_runs([experiment_id], filter_string=f"tags.{_RUN_KEY} = '{run_key}'"))


def _versions_of(client: MlflowClient, recipe: Recipe, run_id: str) -> list[str]:
    found = client.search_model_versions(f"name = '{recipe.model_name}' and run_id = '{run_id}'")
    # MLflow says an alias's version as text and a version's own as a number.
    return [str(version.version) for version in found]


def _champion(client: MlflowClient, recipe: Recipe) -> str | None:
    model = find_model(client, recipe.model_name)
    version = model.aliases.get(CHAMPION) if model else None
    return None if version is None else str(version)
