"""Runs on a cluster: submitted once, found again, and told about."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from types import MappingProxyType
from typing import Any

from kfp_server_api import V2beta1Run, V2beta1RuntimeConfig

from components.run import Run
from pipelines.cluster.client import Client, one_of, predicates, where
from pipelines.cluster.uploads import Version, ensure_experiment
from trainer.errors import InputError
from trainer.recipe import Recipe

ACTIVE = ("PENDING", "RUNNING", "PAUSED")
SUCCEEDED = "SUCCEEDED"
ENDED = (SUCCEEDED, "SKIPPED", "FAILED", "CANCELED")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A run on a cluster.

    Attributes:
        run_id: Its ID there.
        name: What it is called there.
        state: When it was found or made, in Kubeflow Pipelines' words.
        is_new: Whether it was made just now.
        page: Its web page.
    """

    run_id: str
    name: str
    state: str
    is_new: bool
    page: str


def parameters_of(recipe: Recipe) -> dict[str, str]:
    """The parameters that runs of a recipe share, on a cluster."""
    return {
        "recipe": recipe.to_json(),
        "store": recipe.cluster.store,
        "tracking_uri": recipe.cluster.tracking_uri,
    }


def name_of(dag: str, run: Run, parameters: Mapping[str, Any]) -> str:
    """What a run is called: one name for all that reads and writes the same.

    Args:
        dag: One of `pipelines.catalog.DAGS`.
        run: Recipe and date.
        parameters: The DAG's own.
    """
    cluster = run.recipe.cluster
    identity = [dag, run.recipe.digest, run.date.isoformat(), cluster.store, cluster.tracking_uri, dict(parameters)]
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:8]
    return f"{dag}-{run.recipe.name}-{run.date.isoformat()}-{key}"


def submit(
    client: Client,
    dag: str,
    run: Run,
    version: Version,
    *,
    again: bool = False,
    parameters: Mapping[str, Any] = MappingProxyType({}),
) -> Submission:
    """Has a DAG run, unless a run of this name is at work or has succeeded; then that one is it.

    A run of the schedule counts too, when it is the retrain of this date by this recipe.

    Args:
        client: Of the server.
        dag: One of `pipelines.catalog.DAGS`.
        run: Recipe and date.
        version: The DAG as it compiles for the recipe.
        again: Whether a run that has succeeded is not enough.
        parameters: The DAG's own.
    """
    name, experiment = name_of(dag, run, parameters), ensure_experiment(client, run.recipe.model_name)

    def runs() -> list[Any]:
        return list(_runs_of(client, experiment, name, run if dag == "retrain" else None))

    earlier = {found.run_id for found in runs() if found.state == SUCCEEDED} if again else set()

    def find() -> Any | None:
        candidates = [found for found in runs() if found.run_id not in earlier]
        at_work = [found for found in candidates if found.state in ACTIVE or found.state is None]
        return one_of(at_work) or one_of([found for found in candidates if found.state == SUCCEEDED])

    made, is_new = client.find_or_make(
        f"submit {name}",
        find,
        client.runs.run_service_create_run,
        V2beta1Run(
            display_name=name,
            experiment_id=experiment,
            pipeline_version_reference=version.reference,
            runtime_config=V2beta1RuntimeConfig(
                parameters={**parameters_of(run.recipe), "date": run.date.isoformat(), **parameters}
            ),
            service_account=run.recipe.cluster.service_account,
        ),
    )
    return Submission(
        run_id=made.run_id,
        name=made.display_name,
        state=made.state or "PENDING",
        is_new=is_new,
        page=client.server.page("runs", made.run_id),
    )


def latest_of(client: Client, experiment: str, recurring_run_id: str) -> Any | None:
    """The run that a recurring run began last, or None."""
    found = client.list(
        "list runs of the schedule",
        client.runs.run_service_list_runs,
        "runs",
        experiment_id=experiment,
        filter=where(recurring_run_id=recurring_run_id),
        sort_by="created_at desc",
    )
    return one_of(found)


def _runs_of(client: Client, experiment: str, name: str, retrain: Run | None) -> Iterator[Any]:
    """All runs of a name, the newest first, and those of a schedule that are this retrain."""
    listing: Mapping[str, Any] = {"experiment_id": experiment, "sort_by": "created_at desc"}
    list_, method = client.list, client.runs.run_service_list_runs
    yield from list_("list runs", method, "runs", filter=where(display_name=name), **listing)
    if retrain is not None:
        scheduled = list_("list runs", method, "runs", filter=_scheduled_on(retrain), **listing)
        yield from (found for found in scheduled if found.recurring_run_id and _is_of(found, retrain.recipe))


def _scheduled_on(run: Run) -> str:
    """The filter of runs that were scheduled for a time on the run's UTC day."""
    begin = datetime.combine(run.date, time.min, UTC)
    bounds = (("GREATER_THAN_EQUALS", begin), ("LESS_THAN", begin + timedelta(days=1)))
    return predicates(*((name, "scheduled_at", {"timestampValue": f"{at:%Y-%m-%dT%H:%M:%SZ}"}) for name, at in bounds))


def _is_of(found: Any, recipe: Recipe) -> bool:
    """Whether a run of a schedule retrains by this recipe, into the same store."""
    parameters = (found.runtime_config and found.runtime_config.parameters) or {}
    if any(parameters.get(name) != value for name, value in parameters_of(recipe).items() if name != "recipe"):
        return False
    try:
        return Recipe.from_json(parameters.get("recipe", "{}")).digest == recipe.digest
    except InputError:  # an older version's
        return False
