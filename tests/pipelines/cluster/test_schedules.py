"""The recurring run, brought to what the recipe says."""

from datetime import UTC, datetime

import pytest

from pipelines.cluster.client import Client
from pipelines.cluster.schedules import apply, delete, pause, show
from tests.pipelines.cluster.server import Failure, KubeflowPipelines, Tree
from trainer.errors import InputError
from trainer.recipe import Recipe


def the_one(server: KubeflowPipelines) -> Tree:
    (recurring,) = server.recurringruns
    return recurring


def changes(server: KubeflowPipelines) -> list[str]:
    """Requests that change something, without their IDs."""
    return [f"{method} {path.split('/')[3]}" for method, path, _ in server.requests if method != "GET"]


def test_apply_makes_what_the_recipe_says(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    applied = apply(client, recipe.override({"schedule.cron": "30 6 * * *"}))
    made = the_one(server)
    assert applied.verdict == "created"
    assert made["display_name"] == "thawline-synthetic"
    assert made["trigger"] == {"cron_schedule": {"cron": "0 30 6 * * *"}}
    assert (made["max_concurrency"], made["no_catchup"], made["status"]) == ("1", True, "ENABLED")
    assert made["service_account"] == "thawline-step"
    # The date follows from the scheduled time, within the DAG.
    assert made["runtime_config"]["parameters"].keys() == {"recipe", "store", "tracking_uri"}
    assert applied.schedule.state == "enabled"
    assert applied.schedule.differs_in == ()
    assert applied.schedule.page.endswith(f"/#/recurringrun/details/{made['recurring_run_id']}")


def test_apply_twice_changes_nothing_the_second_time(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    apply(client, recipe)
    first = the_one(server)["recurring_run_id"]
    server.requests.clear()
    assert apply(client, recipe).verdict == "unchanged"
    assert changes(server) == []
    assert the_one(server)["recurring_run_id"] == first


@pytest.mark.parametrize(
    ("setting", "is_new_version"),
    [
        ({"schedule.cron": "0 7 * * *"}, False),
        ({"training.seed": "5"}, False),
        ({"cluster.service_account": "other"}, False),
        ({"cluster.training.memory_gib": "12"}, True),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_changed_recipe_changes_it(
    server: KubeflowPipelines, client: Client, recipe: Recipe, setting: dict[str, str], is_new_version: bool
) -> None:
    apply(client, recipe)
    first = the_one(server)["recurring_run_id"]
    server.requests.clear()
    changed = recipe.override(setting)
    assert show(client, changed).differs_in
    assert apply(client, changed).verdict == "changed"
    assert the_one(server)["recurring_run_id"] != first
    assert the_one(server)["status"] == "ENABLED"
    # The new one is there and enabled before the old one goes.
    assert changes(server)[-2:] == ["POST recurringruns", "DELETE recurringruns"]
    assert len(server.versions) == (2 if is_new_version else 1)
    assert apply(client, changed).verdict == "unchanged"


def test_a_changed_version_changes_it(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    apply(client, recipe)
    # As if an earlier Thawline had uploaded another DAG.
    server.versions[0]["display_name"] = "sha256-of-yore"
    assert apply(client, recipe).verdict == "changed"
    assert len(server.versions) == 2


def test_a_run_at_work_survives_a_change_and_a_deletion(
    server: KubeflowPipelines, client: Client, recipe: Recipe
) -> None:
    apply(client, recipe)
    at_work = server.fire(the_one(server), datetime(2024, 1, 10, 6, tzinfo=UTC))
    changed = recipe.override({"schedule.cron": "0 7 * * *"})
    apply(client, changed)
    assert at_work in server.runs
    assert delete(client, changed) == 1
    assert at_work in server.runs
    assert server.recurringruns == []


def test_what_is_paused_is_resumed(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    apply(client, recipe)
    assert pause(client, recipe)
    assert pause(client, recipe)
    assert the_one(server)["status"] == "DISABLED"
    assert show(client, recipe).state == "paused"
    assert apply(client, recipe).verdict == "resumed"
    assert the_one(server)["status"] == "ENABLED"
    assert apply(client, recipe).verdict == "unchanged"


def test_what_a_broken_off_change_left_is_put_in_order(
    server: KubeflowPipelines, client: Client, recipe: Recipe
) -> None:
    apply(client, recipe)
    changed = recipe.override({"schedule.cron": "0 7 * * *"})
    server.failures = [Failure("DELETE", "recurringruns", 403)]
    with pytest.raises(InputError, match="may not delete a schedule"):
        apply(client, changed)
    assert len(server.recurringruns) == 2
    assert apply(client, changed).verdict == "changed"
    assert the_one(server)["trigger"] == {"cron_schedule": {"cron": "0 0 7 * * *"}}


def test_a_schedule_that_was_heard_is_not_made_twice(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    server.failures = [Failure("POST", "recurringruns", 500, is_heard=True)]
    apply(client, recipe)
    assert the_one(server)["display_name"] == "thawline-synthetic", "one, or this raises"


def test_recipes_have_schedules_of_their_own(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    apply(client, recipe)
    assert apply(client, recipe.override({"name": "other"})).verdict == "created"
    assert {it["display_name"] for it in server.recurringruns} == {"thawline-synthetic", "thawline-other"}


def test_show_makes_nothing(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    assert show(client, recipe).state == "none"
    assert not pause(client, recipe)
    assert delete(client, recipe) == 0
    assert changes(server) == []


def test_show_tells_the_last_run(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    apply(client, recipe)
    assert show(client, recipe).last_run is None
    server.fire(the_one(server), datetime(2024, 1, 9, 6, tzinfo=UTC))
    last = server.fire(the_one(server), datetime(2024, 1, 10, 6, tzinfo=UTC))
    last["state"] = "FAILED"
    page = f"{server.endpoint}/#/runs/details/{last['run_id']}"
    assert show(client, recipe).last_run == {"state": "FAILED", "page": page}
