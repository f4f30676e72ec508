"""Which windows MLflow names: those of its runs, and those of the models registered from them."""

from collections.abc import Callable
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.store.entities import PagedList

from trainer.registry.tracking import connect

WINDOW_TAG = "window"
"""Tag of a run: the digest of the window that it read."""

_PAGE = 1000
Found = TypeVar("Found")


def named_windows(tracking_uri: str) -> set[str]:
    """Digests of the windows that runs name; a deleted run counts where a registered model came from it.

    Args:
        tracking_uri: Where MLflow is.
    """
    client = connect(tracking_uri)
    registered = {version.run_id for version in _pages(client.search_model_versions)}
    runs = _runs(client)
    kept = [run for run in runs if run.info.lifecycle_stage == "active" or run.info.run_id in registered]
    return {run.data.tags[WINDOW_TAG] for run in kept if WINDOW_TAG in run.data.tags}


def _runs(client: MlflowClient) -> list[Run]:
    experiments = [experiment.experiment_id for experiment in _pages(client.search_experiments, view_type=ViewType.ALL)]
    return _pages(client.search_runs, experiment_ids=experiments, run_view_type=ViewType.ALL) if experiments else []


def _pages(search: Callable[..., PagedList[Found]], **what: Any) -> list[Found]:
    """Everything that a search of MLflow finds."""
    page = search(max_results=_PAGE, **what)
    found = list(page)
    while page.token:
        page = search(max_results=_PAGE, page_token=page.token, **what)
        found.extend(page)
    return found
