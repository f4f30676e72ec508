"""Comparisons in MLflow: a parent run, a child for each training, and the report."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Param, Run
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from trainer.recipe import Recipe
from trainer.registry.plots import plot_learning_curves
from trainer.registry.runs import log_metrics, log_parameters, training_numbers
from trainer.registry.tracking import connect, ensure_experiment
from trainer.storage.publishing import write_json

_KEY = "comparison"
_FINISHED, _FAILED, _RUNNING = "FINISHED", "FAILED", "RUNNING"
_OUT_OF_METRIC_NAMES = {"*": "-x", "@": "-at", "+": "-"}

LogTraining = Callable[[Mapping[str, Any]], None]
"""Logs what training wrote to ``history.json`` to a child run."""


def experiment_name(recipe: Recipe) -> str:
    """The experiment that holds the comparisons of a recipe."""
    return f"{recipe.model_name}-comparisons"


def open_parent(recipe: Recipe, key: str, facts: Mapping[str, str], tracking_uri: str) -> str:
    """Makes the run of a comparison, or opens the one of that key again.

    Args:
        recipe: The recipe of the comparison.
        key: Identity of the comparison: the same key means the same inputs.
        facts: What is compared, as tags and parameters.
        tracking_uri: Where MLflow is.

    Returns:
        Its ID.
    """
    client = connect(tracking_uri)
    experiment_id = ensure_experiment(client, experiment_name(recipe))
    found = _search(client, experiment_id, f"tags.{_KEY} = '{key}'")
    if found:
        client.update_run(found[0].info.run_id, status=_RUNNING)
        return str(found[0].info.run_id)
    name = f"{facts['date']} {facts['arms']}"
    run_id = str(client.create_run(experiment_id, run_name=name, tags={**facts, _KEY: key}).info.run_id)
    client.log_batch(run_id, params=[Param(name, value) for name, value in facts.items()])
    return run_id


@contextmanager
def open_child(
    recipe: Recipe, name: str, tags: Mapping[str, str], parent: str, tracking_uri: str
) -> Iterator[LogTraining]:
    """Surrounds a training with a child run; a finished one is left as it is, what was interrupted is made anew.

    Args:
        recipe: The recipe of the training.
        name: What people call it.
        tags: Tags of the run; ``case`` among them is its identity.
        parent: ID of the comparison's run, which fails when the training does.
        tracking_uri: Where MLflow is.
    """
    client = connect(tracking_uri)
    experiment_id = client.get_run(parent).info.experiment_id
    of_case = f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{parent}' and tags.`case` = '{tags['case']}'"
    earlier = _search(client, experiment_id, of_case)
    if any(run.info.status == _FINISHED for run in earlier):
        yield lambda history: None
        return
    for run in earlier:
        client.delete_run(run.info.run_id)
    tags = {**tags, MLFLOW_PARENT_RUN_ID: parent}
    run_id = client.create_run(experiment_id, run_name=name, tags=tags).info.run_id
    try:
        log_parameters(client, run_id, recipe)
        yield lambda history: _log_training(client, run_id, history)
        client.set_terminated(run_id, _FINISHED)
    except BaseException:
        for failed in (run_id, parent):
            client.set_terminated(failed, _FAILED)
        raise


def log_report(comparison: Mapping[str, Any], folder: Path, parent: str, tracking_uri: str) -> None:
    """Logs a report to the comparison's run and ends it.

    Args:
        comparison: What ``comparison.json`` holds; lifts become metrics, ``lift/<arm>/<days>d/<metric>``.
        folder: Holds the report's files.
        parent: ID of the run.
        tracking_uri: Where MLflow is.
    """
    client = connect(tracking_uri)
    log_metrics(client, parent, _lift_numbers(comparison))
    client.log_artifacts(parent, str(folder), "report")
    client.set_terminated(parent, _FINISHED)


def _log_training(client: MlflowClient, run_id: str, history: Mapping[str, Any]) -> None:
    log_metrics(client, run_id, training_numbers(history))
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_json(folder / "history.json", dict(history))
        plot_learning_curves(history, folder / "learning_curves.png")
        client.log_artifacts(run_id, str(folder))


def _lift_numbers(comparison: Mapping[str, Any]) -> Iterator[tuple[str, float, int]]:
    for entry in comparison["arms"]:
        word = "".join(_OUT_OF_METRIC_NAMES.get(letter, letter) for letter in entry["arm"])
        for metric, interval in entry["lift"].items():
            for end, suffix in (("point", ""), ("low", "_low"), ("high", "_high")):
                yield f"lift/{word}/{entry['window_days']}d/{metric}{suffix}", interval[end], 0


def _search(client: MlflowClient, experiment_id: str, query: str) -> list[Run]:
    return list(client.search_runs([experiment_id], filter_string=query))
