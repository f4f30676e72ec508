"""The verbs on a cluster, as a user types them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.recipes import synthetic
from tests.pipelines.cluster.server import KubeflowPipelines, serving

RECIPE = ("--recipe", "synthetic")


@pytest.fixture
def server() -> Iterator[KubeflowPipelines]:
    with serving(KubeflowPipelines()) as state:
        yield state


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """The last line on stdout, or on stderr where the command fails."""
    assert main(arguments) == code
    captured = capsys.readouterr()
    lines = (captured.err if code else captured.out).splitlines()
    assert "Traceback" not in captured.err
    return lines[-1]


def test_a_schedule_is_kept_by_hand(server: KubeflowPipelines, capsys: pytest.CaptureFixture[str]) -> None:
    where = (*RECIPE, "--endpoint", server.endpoint)
    assert said(capsys, "schedule", "show", *where).startswith("schedule: none there, thawline-synthetic")
    line = said(capsys, "schedule", "apply", *where)
    assert line.startswith("schedule: created, thawline-synthetic is enabled: cron `0 0 6 * * *` UTC; http://")
    assert said(capsys, "schedule", "apply", *where).startswith("schedule: unchanged, ")
    assert said(capsys, "schedule", "pause", *where) == "schedule: paused, thawline-synthetic"
    assert "is paused" in said(capsys, "schedule", "show", *where)
    assert said(capsys, "schedule", "apply", *where).startswith("schedule: resumed, ")
    assert said(capsys, "schedule", "delete", *where) == "schedule: deleted, thawline-synthetic"
    assert said(capsys, "schedule", "delete", *where) == "schedule: none there, thawline-synthetic"
    told = said(capsys, "schedule", "pause", *where, code=2)
    assert told == (
        "thawline: error: schedule thawline-synthetic: there is none to pause; `thawline schedule apply` makes it"
    )


def test_scripts_read_json(server: KubeflowPipelines, capsys: pytest.CaptureFixture[str]) -> None:
    where = (*RECIPE, "--endpoint", server.endpoint, "--json")
    applied = json.loads(said(capsys, "schedule", "apply", *where, "--set", "schedule.time_zone=Europe/Berlin"))
    assert applied["verdict"] == "created" and applied["state"] == "enabled"
    assert applied["holds_until"] > "2024"
    shown = json.loads(said(capsys, "schedule", "show", *where, "--set", "schedule.cron=0 7 * * *"))
    assert shown["differs_in"] == ["cron", "recipe"]
    assert json.loads(said(capsys, "schedule", "pause", *where))["verdict"] == "paused"
    assert json.loads(said(capsys, "schedule", "delete", *where))["verdict"] == "deleted"


def test_show_says_what_differs_and_what_ran(server: KubeflowPipelines, capsys: pytest.CaptureFixture[str]) -> None:
    where = (*RECIPE, "--endpoint", server.endpoint)
    said(capsys, "schedule", "apply", *where)
    server.fire(server.recurringruns[0], datetime(2024, 1, 10, 6, tzinfo=UTC))
    main(["schedule", "show", *where, "--set", "training.seed=5"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "the recipe   says otherwise: recipe; `schedule apply` changes it"
    assert lines[1].strip().startswith(f"last run     pending, {server.endpoint}/#/runs/details/")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("schedule", "apply"), "--endpoint: not given"),
        (("schedule",), "VERB"),
        (("retrain", "--runner", "cluster"), "--endpoint: not given"),
        (("retrain", "--runner", "cluster", "--endpoint", "kubeflow"), "--endpoint kubeflow: no URL"),
        (("retrain", "--runner", "cluster", "--store", "here", "--endpoint", "http://x"), "'here' is no absolute path"),
        (("schedule", "apply", "--endpoint", "http://x", "--token-file", "nowhere"), "--token-file nowhere"),
        (("schedule", "apply", "--endpoint", "http://x", "--set", "schedule.cron=daily"), "schedule"),
        (("backfill", "--from", "2024-01-10"), "--to"),
        (("backfill", "--from", "2024-01-10", "--to", "2024-01-09"), "--to 2024-01-09: is before --from 2024-01-10"),
    ],
)
def test_a_mistyped_command_is_told(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str) -> None:
    assert told in said(capsys, *arguments, code=2)


def test_a_retrain_is_submitted_once_and_followed(
    server: KubeflowPipelines, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script = [("SUCCEEDED", [("train", "SUCCEEDED", 1.0, 5.0)])]
    command = ("retrain", "--runner", "cluster", *RECIPE, "--date", "2024-01-10", "--endpoint", server.endpoint)
    assert main(command) == 0
    captured = capsys.readouterr()
    folder = f"synthetic-2024-01-10-{synthetic().digest[:8]}"
    assert captured.out == f"summary: /store/runs/{folder}/summary.json on the cluster\n"
    first, step = captured.err.splitlines()
    assert first.startswith("retrain-synthetic-2024-01-10-") and ": submitted, http://" in first
    assert step.split() == ["train", "4.0", "s"]
    assert main((*command, "--json")) == 0
    captured = capsys.readouterr()
    assert "there already (succeeded)" in captured.err
    assert json.loads(captured.out)["run"] == server.runs[0]["run_id"]
    assert len(server.runs) == 1
    assert main((*command, "--again")) == 0
    assert len(server.runs) == 2


def test_a_store_that_is_mounted_here_too_tells_more(
    server: KubeflowPipelines, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ("pretrain", "--runner", "cluster", *RECIPE, "--date", "2024-01-10", "--endpoint", server.endpoint)
    folder = tmp_path / "runs" / f"synthetic-2024-01-10-{synthetic().digest[:8]}"
    folder.mkdir(parents=True)
    (folder / "backbone.json").write_text(json.dumps({"model": "m", "version": "3"}))
    assert said(capsys, *command, "--store", str(tmp_path)) == "backbone: models:/m/3"
    assert server.runs[0]["runtime_config"]["parameters"]["store"] == str(tmp_path)


@pytest.mark.parametrize(("is_mistake", "code"), [(True, 2), (False, 1)])
def test_a_run_that_fails_ends_the_command_as_a_local_one(
    server: KubeflowPipelines, capsys: pytest.CaptureFixture[str], tmp_path: Path, is_mistake: bool, code: int
) -> None:
    server.script = [("FAILED", [("plan-window", "FAILED", 1.0, 5.0)])]
    folder = tmp_path / "runs" / f"synthetic-2024-01-10-{synthetic().digest[:8]}"
    folder.mkdir(parents=True)
    end = {"run": "", "recipe": "", "date": "", "status": "failed", "failed_step": "plan_window window"}
    (folder / "end.json").write_text(json.dumps({**end, "error": "no logs for 2024-01-09", "is_mistake": is_mistake}))
    command = ("retrain", "--runner", "cluster", *RECIPE, "--date", "2024-01-10", "--endpoint", server.endpoint)
    told = said(capsys, *command, "--store", str(tmp_path), code=code)
    assert told == (
        "thawline: error: no logs for 2024-01-09"
        if is_mistake
        else f"thawline: failed: plan_window failed; see {server.endpoint}/#/runs/details/{server.runs[0]['run_id']}"
    )


def test_a_span_is_filled_day_by_day_and_from_where_it_broke_off(
    server: KubeflowPipelines, capsys: pytest.CaptureFixture[str]
) -> None:
    span = ("--from", "2024-01-08", "--to", "2024-01-10")
    command = ("backfill", "--runner", "cluster", *RECIPE, *span, "--endpoint", server.endpoint)
    server.script = [("SUCCEEDED", [])]
    assert main((*command[:-1], server.endpoint, "--to", "2024-01-08")) == 0
    server.script = [("FAILED", [("train", "FAILED", 1.0, 5.0)])]
    assert said(capsys, *command, code=1).startswith("thawline: failed: train failed")
    assert [run["runtime_config"]["parameters"]["date"] for run in server.runs] == ["2024-01-08", "2024-01-09"]
    server.script = [("SUCCEEDED", [])]
    assert main(command) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("2024-01-08  http://") and out[0].endswith("(there already)")
    assert out[-1] == "backfilled: 2024-01-08 to 2024-01-10, 3 days, 1 of them there already; /store/runs"
    dates = [run["runtime_config"]["parameters"]["date"] for run in server.runs]
    assert dates == ["2024-01-08", "2024-01-09", "2024-01-09", "2024-01-10"]


def test_days_that_have_a_summary_are_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for day in ("2024-01-09", "2024-01-10"):
        folder = tmp_path / "runs" / f"synthetic-{day}-{synthetic().digest[:8]}"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps({"version": "3", "decision": "hold"}))
    span = ("--from", "2024-01-09", "--to", "2024-01-10", "--store", str(tmp_path))
    assert main(("backfill", *RECIPE, *span)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2024-01-09  version 3: hold  (there already)",
        "2024-01-10  version 3: hold  (there already)",
        f"backfilled: 2024-01-09 to 2024-01-10, 2 days, 2 of them there already; {tmp_path}/runs",
    ]
    assert main(("backfill", *RECIPE, *span, "--json")) == 0
    assert [day["is_skipped"] for day in json.loads(capsys.readouterr().out)] == [True, True]
