"""The daily DAG in containers: MLflow behind HTTP with PostgreSQL, no root, nothing to write on but what is mounted."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from components.images import DATA_IMAGE, TRAINER_IMAGE
from pipelines.runners.docker import container_user
from tests.conftest import REPOSITORY, Thawline
from tests.containers.servers import MlflowServer
from tests.pipelines.test_retrain import on

# One worker, for both look at every container of ours on the engine.
pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers of ours")]

LABEL = "thawline.run"
DATE = ("--date", "2024-01-09")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A retrain: its summary, its steps in order, and the containers that were seen meanwhile."""

    store: Path
    summary: dict[str, Any]
    steps: list[str]
    seen: dict[str, dict[str, Any]]


@contextmanager
def watching(engine: docker.DockerClient) -> Iterator[dict[str, dict[str, Any]]]:
    """Fills a dict with what the engine says about each container of ours, by ID, while the block runs."""
    seen: dict[str, dict[str, Any]] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            for container in engine.api.containers(filters={"label": LABEL}):
                if container["Id"] not in seen:
                    try:
                        seen[container["Id"]] = engine.api.inspect_container(container["Id"])
                    except docker.errors.NotFound:
                        continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def retrained(thawline: Thawline, engine: docker.DockerClient, store: Path, *arguments: str) -> Outcome:
    with watching(engine) as seen:
        done = thawline("retrain", *DATE, *arguments, "--json")
    logs = "".join(path.read_text() for path in store.glob("runs/*/run.log"))
    assert done.returncode == 0, done.stderr + logs
    # Days are prepared side by side, and their line says when the last one ended.
    steps = [line.split("  ")[1].strip() for line in done.stderr.splitlines() if line.endswith(" s")]
    return Outcome(store=store, summary=json.loads(done.stdout), steps=steps, seen=seen)


@pytest.fixture(scope="module")
def here(thawline: Thawline, engine: docker.DockerClient, tiny_log: Path, tmp_path_factory: Any) -> Outcome:
    store = tmp_path_factory.mktemp("here")
    return retrained(thawline, engine, store, *on(tiny_log, store))


@pytest.fixture(scope="module")
def there(
    thawline: Thawline, engine: docker.DockerClient, tiny_log: Path, mlflow_server: MlflowServer, tmp_path_factory: Any
) -> Outcome:
    store = tmp_path_factory.mktemp("there") / "store"
    options = ("--runner", "docker", "--tracking-uri", mlflow_server.uri)
    return retrained(thawline, engine, store, *on(tiny_log, store), *options)


def test_it_gives_the_same_model(here: Outcome, there: Outcome) -> None:
    assert there.summary["metrics"] == here.summary["metrics"]
    for name in ("model", "version", "decision", "reasons", "window", "lift"):
        assert there.summary[name] == here.summary[name], name


def test_it_tells_the_same(here: Outcome, there: Outcome) -> None:
    assert there.steps == here.steps
    assert "train" in there.steps
    assert set(there.summary["duration_s"]) == set(here.summary["duration_s"])


def test_every_step_was_held_like_a_pod(there: Outcome) -> None:
    # A window's four days, the backbone's three, and the steps around them.
    assert len(there.seen) > 12
    for told in there.seen.values():
        held, config = told["HostConfig"], told["Config"]
        assert held["ReadonlyRootfs"] is True
        assert held["CapDrop"] == ["ALL"]
        assert held["SecurityOpt"] == ["no-new-privileges"]
        assert not held["Privileged"]
        assert config["User"] == "{}:{}".format(*container_user())
        assert int(config["User"].split(":")[0]) > 0
        assert config["Image"] in (DATA_IMAGE, TRAINER_IMAGE)


def test_nothing_needs_a_process_outside(here: Outcome) -> None:
    assert not here.seen


def test_days_are_prepared_without_torch(there: Outcome) -> None:
    images = {
        told["Config"]["Image"] for told in there.seen.values() if "def prepare_day(" in " ".join(told["Config"]["Cmd"])
    }
    assert images == {DATA_IMAGE}


def test_containers_are_gone(engine: docker.DockerClient, there: Outcome) -> None:
    assert not engine.containers.list(all=True, filters={"label": LABEL})


def test_what_steps_wrote_is_theirs(there: Outcome) -> None:
    """The run's log alone is written outside of containers."""
    paths = [path for path in there.store.rglob("*") if path.name != "run.log"]
    assert paths
    assert {(path.stat().st_uid, path.stat().st_gid) for path in paths} == {container_user()}


def test_models_went_through_the_server(there: Outcome, mlflow_server: MlflowServer) -> None:
    assert list(mlflow_server.artifacts.rglob("MLmodel"))
    assert {path.name for path in there.store.iterdir()} == {"partitions", "prepared", "runs", "windows"}


def test_the_next_day_is_judged_against_the_champion(
    thawline: Thawline, tiny_log: Path, mlflow_server: MlflowServer, there: Outcome
) -> None:
    options = ("--runner", "docker", "--tracking-uri", mlflow_server.uri, "--json")
    done = thawline("retrain", "--date", "2024-01-10", *on(tiny_log, there.store), *options)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["version"] == "2"
    assert summary["champion_metrics"] is not None
    assert "pretrain" not in summary["duration_s"]


def test_a_mistake_in_a_container_is_one_line(
    thawline: Thawline, tiny_log: Path, mlflow_server: MlflowServer, there: Outcome
) -> None:
    options = ("--runner", "docker", "--tracking-uri", mlflow_server.uri)
    done = thawline("retrain", "--date", "2024-03-01", *on(tiny_log, there.store), *options)
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("thawline: error: ")]
    assert lines == done.stderr.splitlines()[-1:]
    assert "no logs for 2024-02-26" in lines[0]
    assert "Traceback" not in done.stderr


def test_an_interrupted_run_leaves_no_container(engine: docker.DockerClient, tiny_log: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipelines.cli", "retrain", *DATE, *on(tiny_log, tmp_path / "store")]
    with (tmp_path / "said").open("w+") as said:
        run = subprocess.Popen([*command, "--runner", "docker"], cwd=REPOSITORY, stderr=said, start_new_session=True)
        deadline_s = time.monotonic() + 120
        while not engine.containers.list(filters={"label": LABEL}) and time.monotonic() < deadline_s:
            assert run.poll() is None, said.read()
            time.sleep(0.1)
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(timeout=60) == 130
        said.seek(0)
        assert said.read().splitlines()[-1] == "thawline: interrupted"
    assert not engine.containers.list(all=True, filters={"label": LABEL})
