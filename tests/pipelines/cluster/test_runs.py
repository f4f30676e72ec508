"""Submitting once, and following to the end."""

import io
import signal
import threading
from contextlib import redirect_stderr
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from components.run import Run
from pipelines.cluster.client import Client
from pipelines.cluster.following import follow
from pipelines.cluster.runs import Submission, submit
from pipelines.cluster.schedules import apply
from pipelines.cluster.uploads import Version, ensure_version
from pipelines.errors import RunFailedError
from tests.pipelines.cluster.server import Failure, KubeflowPipelines
from trainer.recipe import Recipe

DAY = date(2024, 1, 10)


@pytest.fixture
def run(recipe: Recipe) -> Run:
    return Run(recipe=recipe, date=DAY, store=recipe.cluster.store)


@pytest.fixture
def version(client: Client, recipe: Recipe) -> Version:
    return ensure_version(client, "retrain", recipe)


def test_a_dag_is_uploaded_when_it_is_new(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    first = ensure_version(client, "retrain", recipe)
    again = ensure_version(client, "retrain", recipe)
    assert (first.is_new, again.is_new) == (True, False)
    assert again == replace(first, is_new=False)
    other = ensure_version(client, "retrain", recipe.override({"cluster.num_retries": "9"}))
    assert other.is_new and other.pipeline_id == first.pipeline_id
    assert [it["display_name"] for it in server.pipelines] == ["thawline-retrain"]
    assert [it["display_name"] for it in server.versions] == [first.name, other.name]
    assert {"plan-window", "train", "report-run", "register"} < first.steps
    assert not {"window-to-decision", "run"} & first.steps


def test_an_upload_that_was_heard_is_not_made_twice(server: KubeflowPipelines, client: Client, recipe: Recipe) -> None:
    server.failures = [Failure("POST", "upload_version", 500, is_heard=True)]
    assert ensure_version(client, "retrain", recipe).version_id == server.versions[0]["pipeline_version_id"]
    assert len(server.versions) == 1


def test_a_run_is_submitted_with_what_the_recipe_says(
    server: KubeflowPipelines, client: Client, run: Run, version: Version
) -> None:
    submission = submit(client, "retrain", run, version)
    (made,) = server.runs
    assert made["run_id"] == submission.run_id
    assert made["display_name"].startswith("retrain-synthetic-2024-01-10-")
    assert made["service_account"] == "thawline-step"
    assert made["pipeline_version_reference"]["pipeline_version_id"] == version.version_id
    assert made["runtime_config"]["parameters"] == {
        "recipe": run.recipe.to_json(),
        "date": "2024-01-10",
        "store": "/store",
        "tracking_uri": "http://mlflow:5000",
    }
    assert submission.page == f"{server.endpoint}/#/runs/details/{submission.run_id}"


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "PAUSED", "SUCCEEDED"])
def test_a_run_that_is_at_work_or_done_is_found(
    server: KubeflowPipelines, client: Client, run: Run, version: Version, state: str
) -> None:
    first = submit(client, "retrain", run, version)
    server.runs[0]["state"] = state
    # Other pods do not make it another retrain.
    other = replace(run, recipe=run.recipe.override({"cluster.num_retries": "9", "schedule.cron": "1 1 * * *"}))
    again = submit(client, "retrain", other, version)
    assert (again.run_id, again.is_new, again.state) == (first.run_id, False, state)


@pytest.mark.parametrize("state", ["FAILED", "CANCELED", "CANCELING"])
def test_a_run_that_did_not_go_well_is_followed_by_another(
    server: KubeflowPipelines, client: Client, run: Run, version: Version, state: str
) -> None:
    first = submit(client, "retrain", run, version)
    server.runs[0]["state"] = state
    again = submit(client, "retrain", run, version)
    assert again.is_new and again.run_id != first.run_id
    assert again.name == first.name


def test_a_run_that_succeeded_may_be_made_again(
    server: KubeflowPipelines, client: Client, run: Run, version: Version
) -> None:
    first = submit(client, "retrain", run, version)
    server.runs[0]["state"] = "SUCCEEDED"
    second = submit(client, "retrain", run, version, again=True)
    assert second.is_new and second.run_id != first.run_id
    assert submit(client, "retrain", run, version, again=True).run_id == second.run_id


@pytest.mark.parametrize(
    "changed",
    [
        lambda run: replace(run, date=DAY + timedelta(days=1)),
        lambda run: replace(run, recipe=run.recipe.override({"training.seed": "5"})),
        lambda run: replace(run, recipe=run.recipe.override({"cluster.store": "/other"})),
    ],
    ids=["date", "recipe", "store"],
)
def test_another_retrain_is_another_run(client: Client, run: Run, version: Version, changed: object) -> None:
    assert callable(changed)
    assert submit(client, "retrain", run, version).is_new
    assert submit(client, "retrain", changed(run), version).is_new


def test_a_submission_that_was_heard_is_not_made_twice(
    server: KubeflowPipelines, client: Client, run: Run, version: Version
) -> None:
    server.failures = [Failure("POST", "/runs$", 0, is_heard=True)]
    submission = submit(client, "retrain", run, version)
    assert [made["run_id"] for made in server.runs] == [submission.run_id]


@pytest.mark.parametrize(
    ("at", "is_taken"),
    [
        (datetime(2024, 1, 10, 6, tzinfo=UTC), True),
        (datetime(2024, 1, 10, 23, 59, 59, tzinfo=UTC), True),
        (datetime(2024, 1, 9, 23, 59, 59, tzinfo=UTC), False),
        (datetime(2024, 1, 11, tzinfo=UTC), False),
    ],
)
def test_the_schedule_s_run_of_that_day_is_the_run(
    server: KubeflowPipelines, client: Client, run: Run, version: Version, at: datetime, is_taken: bool
) -> None:
    apply(client, run.recipe)
    scheduled = server.fire(server.recurringruns[0], at)
    submission = submit(client, "retrain", run, version)
    assert (submission.run_id == scheduled["run_id"]) is is_taken


def test_the_schedule_s_run_of_another_recipe_is_not(
    server: KubeflowPipelines, client: Client, run: Run, version: Version
) -> None:
    apply(client, run.recipe.override({"training.seed": "5"}))
    server.fire(server.recurringruns[0], datetime(2024, 1, 10, 6, tzinfo=UTC))
    assert submit(client, "retrain", run, version).is_new


STEPS = ("plan-window", "prepare-day", "assemble-window", "train", "register", "report-run")
DRIVERS = [("root", "RUNNING", 0.0, 0.0), ("plan-window-driver", "SUCCEEDED", 0.0, 1.0)]
PLANNED = [*DRIVERS, ("plan-window", "SUCCEEDED", 1.0, 6.0)]


def watched(client: Client, submission: Submission) -> tuple[list[str], Exception | None]:
    told = io.StringIO()
    with redirect_stderr(told):
        try:
            follow(client, submission, STEPS, every_s=0.0)
        except RunFailedError as error:
            return told.getvalue().splitlines(), error
    return told.getvalue().splitlines(), None


def test_steps_are_told_as_they_end(server: KubeflowPipelines, client: Client, run: Run, version: Version) -> None:
    day = ("prepare-day", "SUCCEEDED", 10.0, 20.0)
    server.script = [
        ("PENDING", []),
        ("RUNNING", DRIVERS),
        ("RUNNING", [*PLANNED, day, ("prepare-day", "RUNNING", 10.0, 0.0)]),
        ("RUNNING", [*PLANNED, day, ("prepare-day", "SUCCEEDED", 10.0, 34.5)]),
        ("RUNNING", [*PLANNED, day, ("prepare-day", "SUCCEEDED", 10.0, 34.5), ("train", "RUNNING", 40.0, 0.0)]),
        ("RUNNING", [*PLANNED, day, ("prepare-day", "SUCCEEDED", 10.0, 34.5), ("train", "SUCCEEDED", 40.0, 130.0)]),
        (
            "SUCCEEDED",
            [
                *PLANNED,
                day,
                ("prepare-day", "SUCCEEDED", 10.0, 34.5),
                ("train", "SUCCEEDED", 40.0, 130.0),
                ("register", "SKIPPED", 0.0, 0.0),
                ("report-run", "SUCCEEDED", 131.0, 133.0),
            ],
        ),
    ]
    lines, error = watched(client, submit(client, "retrain", run, version))
    assert error is None
    assert [line.split("  ")[1].strip() for line in lines] == [
        "plan_window",
        "prepare_day (2 days)",
        "train",
        "report_run",
    ]
    assert [float(line.split()[-2]) for line in lines] == [5.0, 24.0, 90.0, 2.0]


def test_a_failed_step_is_named(server: KubeflowPipelines, client: Client, run: Run, version: Version) -> None:
    failed = [*PLANNED, ("train", "FAILED", 7.0, 9.0), ("report-run", "SUCCEEDED", 10.0, 11.0)]
    server.script = [("RUNNING", PLANNED), ("FAILED", failed)]
    submission = submit(client, "retrain", run, version)
    lines, error = watched(client, submission)
    assert lines[1].split()[0] == "train" and lines[1].endswith("failed")
    assert str(error) == f"train failed; see {submission.page}"


def test_a_cancelled_run_is_told(server: KubeflowPipelines, client: Client, run: Run, version: Version) -> None:
    server.script = [("CANCELING", []), ("CANCELED", [])]
    server.script = [("RUNNING", []), ("CANCELED", [])]
    _, error = watched(client, submit(client, "retrain", run, version))
    assert "was cancelled" in str(error)


def test_a_short_outage_is_waited_out(server: KubeflowPipelines, client: Client, run: Run, version: Version) -> None:
    submission = submit(client, "retrain", run, version)
    server.script = [("RUNNING", PLANNED), ("SUCCEEDED", PLANNED)]
    server.failures = [Failure("GET", "/runs/", 503, times=2)]
    assert watched(client, submission)[1] is None


def test_a_lost_server_is_told_with_what_goes_on(
    server: KubeflowPipelines, client: Client, run: Run, version: Version
) -> None:
    submission = submit(client, "retrain", run, version)
    server.failures = [Failure("GET", "/runs/", 503, times=99)]
    _, error = watched(client, submission)
    assert "the run goes on, and the same command follows it again" in str(error)


def test_an_interrupt_leaves_the_run_at_work(
    server: KubeflowPipelines, client: Client, run: Run, version: Version
) -> None:
    server.script = [("RUNNING", [])]
    submission = submit(client, "retrain", run, version)
    told = io.StringIO()
    # Once it is being followed.
    timer = threading.Thread(target=_interrupt_when, args=(server, submission))
    timer.start()
    with redirect_stderr(told), pytest.raises(KeyboardInterrupt):
        follow(client, submission, STEPS, every_s=0.01)
    timer.join()
    assert f"the run goes on: {submission.page}" in told.getvalue()
    assert server.runs[0]["state"] == "RUNNING"
    assert not server.asked("DELETE")


def _interrupt_when(server: KubeflowPipelines, submission: Submission) -> None:
    looked = threading.Event()
    while not server.looks.get(submission.run_id, 0) > 2:
        looked.wait(0.01)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
