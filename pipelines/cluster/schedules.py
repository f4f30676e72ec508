"""The recurring run of a recipe: brought to what the recipe says, told about, paused and deleted.

Kubeflow Pipelines cannot change a recurring run, only make, enable, disable and delete one. So a changed one is made
anew, enabled, and the old one is deleted then: no scheduled time is missed, and for a moment two are enabled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from kfp_server_api import (
    RecurringRunMode,
    V2beta1CronSchedule,
    V2beta1DeletePropagationPolicy,
    V2beta1RecurringRun,
    V2beta1RuntimeConfig,
    V2beta1Trigger,
)

from pipelines.cluster.client import Client, one_of, where
from pipelines.cluster.cron import UtcCron, to_utc
from pipelines.cluster.runs import latest_of, parameters_of
from pipelines.cluster.uploads import Version, ensure_experiment, ensure_version, find_experiment
from trainer.recipe import Recipe

DAG = "scheduled_retrain"
_ENABLED = "ENABLED"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A recipe's recurring run as it is on a server.

    Attributes:
        name: What it is called there.
        recurring_run_id: Its ID; empty when there is none.
        state: ``enabled``, ``paused`` or ``none``.
        cron: Six fields, in the controller's zone, which is UTC.
        holds_until: The day on which the recipe's zone changes its clocks, and `apply` is due again; None for never.
        differs_in: What the recipe says otherwise.
        last_run: Page and state of the run that it began last; None when it began none.
        page: Its web page.
    """

    name: str
    recurring_run_id: str
    state: str
    cron: str
    holds_until: date | None
    differs_in: tuple[str, ...]
    last_run: dict[str, str] | None
    page: str


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What `apply` did.

    Attributes:
        verdict: ``created``, ``changed``, ``resumed`` or ``unchanged``.
        schedule: As it is now.
    """

    verdict: str
    schedule: Schedule


def name_of(recipe: Recipe) -> str:
    """What a recipe's recurring run is called."""
    return recipe.model_name


def apply(client: Client, recipe: Recipe) -> Applied:
    """Makes the recurring run what the recipe says, and enables it; one that is so already is left alone.

    Args:
        client: Of the server.
        recipe: What to run, where, and when.

    Raises:
        InputError: The server refuses, or the recipe's time zone is not known here.
    """
    cron = _utc(recipe)
    experiment = ensure_experiment(client, recipe.model_name)
    wanted = _wanted(recipe, cron, ensure_version(client, DAG, recipe), experiment)
    found = list(_found(client, experiment, recipe))
    same = [it for it in found if not _differences(wanted, it)]
    verdict = "unchanged"
    if same:
        # Of two alike, which only a broken-off `apply` leaves, the enabled one stays.
        kept = one_of([it for it in same if _is_enabled(it)]) or same[0]
        if not _is_enabled(kept):
            client.call(
                "resume the schedule",
                client.recurring_runs.recurring_run_service_enable_recurring_run,
                kept.recurring_run_id,
            )
            verdict = "resumed"
    else:
        kept, _ = client.find_or_make(
            "make the schedule",
            lambda: one_of([it for it in _found(client, experiment, recipe) if not _differences(wanted, it)]),
            client.recurring_runs.recurring_run_service_create_recurring_run,
            wanted,
        )
        verdict = "changed" if found else "created"
    left = [it for it in found if it.recurring_run_id != kept.recurring_run_id]
    for it in left:
        _delete(client, it)
    if left and verdict == "unchanged":
        verdict = "changed"
    return Applied(verdict=verdict, schedule=show(client, recipe))


def show(client: Client, recipe: Recipe) -> Schedule:
    """The recurring run as it is; nothing is made, not even an upload."""
    cron = _utc(recipe)
    experiment, kept = _current(client, recipe)
    if experiment is None or kept is None:
        return Schedule(
            name=name_of(recipe),
            recurring_run_id="",
            state="none",
            cron=cron.text,
            holds_until=cron.holds_until,
            differs_in=(),
            last_run=None,
            page="",
        )
    last = latest_of(client, experiment, kept.recurring_run_id)
    return Schedule(
        name=name_of(recipe),
        recurring_run_id=kept.recurring_run_id,
        state="enabled" if _is_enabled(kept) else "paused",
        cron=_cron_of(kept),
        holds_until=cron.holds_until,
        differs_in=tuple(_differences(_wanted(recipe, cron, None, experiment), kept)),
        last_run=last and {"state": last.state or "PENDING", "page": client.server.page("runs", last.run_id)},
        page=client.server.page("recurringrun", kept.recurring_run_id),
    )


def pause(client: Client, recipe: Recipe) -> bool:
    """Begins no further run; one at work goes on. Returns whether there is a recurring run to pause."""
    _, kept = _current(client, recipe)
    if kept is None:
        return False
    client.call(
        "pause the schedule", client.recurring_runs.recurring_run_service_disable_recurring_run, kept.recurring_run_id
    )
    return True


def delete(client: Client, recipe: Recipe) -> int:
    """Deletes the recurring run; a run at work goes on. Returns how many there were."""
    found = find_experiment(client, recipe.model_name)
    recurring = [] if found is None else list(_found(client, found.experiment_id, recipe))
    for it in recurring:
        _delete(client, it)
    return len(recurring)


def _utc(recipe: Recipe) -> UtcCron:
    return to_utc(recipe.schedule, datetime.now(UTC).date())


def _current(client: Client, recipe: Recipe) -> tuple[str | None, Any | None]:
    """Experiment and recurring run, the enabled one of several; None for what is not there."""
    experiment = find_experiment(client, recipe.model_name)
    if experiment is None:
        return None, None
    found = list(_found(client, experiment.experiment_id, recipe))
    return experiment.experiment_id, one_of([it for it in found if _is_enabled(it)]) or one_of(found)


def _found(client: Client, experiment: str, recipe: Recipe) -> Iterator[Any]:
    return client.list(
        "list schedules",
        client.recurring_runs.recurring_run_service_list_recurring_runs,
        "recurring_runs",
        experiment_id=experiment,
        filter=where(display_name=name_of(recipe)),
        sort_by="created_at desc",
    )


def _wanted(recipe: Recipe, cron: UtcCron, version: Version | None, experiment: str) -> V2beta1RecurringRun:
    return V2beta1RecurringRun(
        display_name=name_of(recipe),
        description=f"The daily retrain of recipe {recipe.name}, kept by `thawline schedule apply`.",
        experiment_id=experiment,
        pipeline_version_reference=version and version.reference,
        runtime_config=V2beta1RuntimeConfig(parameters=parameters_of(recipe)),
        service_account=recipe.cluster.service_account,
        max_concurrency="1",
        no_catchup=True,
        trigger=V2beta1Trigger(cron_schedule=V2beta1CronSchedule(cron=cron.text)),
        mode=RecurringRunMode.ENABLE,
    )


def _differences(wanted: V2beta1RecurringRun, found: Any) -> list[str]:
    """What a recurring run on the server has otherwise; a version that is not known is not compared."""
    parameters = (found.runtime_config and found.runtime_config.parameters) or {}
    pairs: dict[str, tuple[object, object]] = {
        "cron": (wanted.trigger.cron_schedule.cron, _cron_of(found)),
        "service account": (wanted.service_account, found.service_account),
        "concurrency": (int(wanted.max_concurrency), int(found.max_concurrency or 0)),
        "catch-up": (not wanted.no_catchup, not found.no_catchup),
        **{name: (value, parameters.get(name)) for name, value in wanted.runtime_config.parameters.items()},
    }
    if wanted.pipeline_version_reference is not None:
        reference = found.pipeline_version_reference
        pairs["version of the DAG"] = (
            wanted.pipeline_version_reference.pipeline_version_id,
            reference and reference.pipeline_version_id,
        )
    return [name for name, (ours, theirs) in pairs.items() if ours != theirs]


def _cron_of(found: Any) -> str:
    trigger = found.trigger
    return (trigger and trigger.cron_schedule and trigger.cron_schedule.cron) or ""


def _is_enabled(found: Any) -> bool:
    return bool(found.status == _ENABLED)


def _delete(client: Client, found: Any) -> None:
    # Its runs belong to it: without a word about them they would be deleted too, one at work among them.
    client.call(
        "delete a schedule",
        client.recurring_runs.recurring_run_service_delete_recurring_run,
        found.recurring_run_id,
        propagation_policy=V2beta1DeletePropagationPolicy.ORPHAN,
    )
