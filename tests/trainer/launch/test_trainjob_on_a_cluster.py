"""What is asked of a cluster, through the SDK's Kubernetes backend, and what is made of its answers."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from tests.manifests.schemas import CUSTOM_RESOURCES
from tests.trainer import tiny
from tests.trainer.launch.cluster_api import Cluster, served
from trainer.launch import Job
from trainer.launch.trainjob import TrainJobs

NAME = "thawline-train-0123"
PLACE = {
    "cluster.runtime": "thawline-trainer-backfill",
    "cluster.accelerator": "nvidia.com/gpu",
    "cluster.training.max_cpus": "7.5",
    "cluster.training.timeout_s": "3600",
    "cluster.training.memory_gib": "64",
    "cluster.node_labels": "[cloud.example/accelerator=h200]",
    "cluster.tolerations": "['nvidia.com/gpu:NoSchedule', 'pool=train:NoExecute']",
}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Runs a job whose backbone is a file, on four ranks of two hosts."""
    monkeypatch.setenv("THAWLINE_RUN", "tiny-2024-01-09")
    (tmp_path / "backbone").mkdir()
    (tmp_path / "backbone" / "manifest.json").write_text("{}")
    recipe = tiny.recipe({"training.num_ranks": "4", "cluster.num_nodes": "2", **PLACE})
    job = Job(
        task="train",
        recipe=recipe,
        window=str(tmp_path / "store" / "window.json"),
        backbone=str(tmp_path / "backbone"),
        out=str(tmp_path / "out"),
    )
    with served(cluster) as client:
        jobs = TrainJobs(
            name=NAME,
            store=str(tmp_path / "store"),
            image="registry.example/thawline/trainer:1",
            connect=lambda: client,
            look_every_s=0.01,
        )
        yield lambda: jobs.run(job)


def folder_of(submitted: dict[str, Any]) -> Path:
    """The job's folder, which its hosts read."""
    return Path(submitted["spec"]["trainer"]["command"][-1]).parent


def after(cluster: Cluster, num_looks: int, act: Callable[[], None]) -> None:
    """Acts once the submitted job was looked at so many times."""
    seen = 0

    def look(name: str) -> None:
        nonlocal seen
        seen += name in cluster.jobs and bool(cluster.submitted)
        if seen == num_looks:
            act()

    cluster.on_look = look


def complete(cluster: Cluster) -> Callable[[], None]:
    def act() -> None:
        cluster.on_look = lambda _: None
        out = folder_of(cluster.submitted[-1]) / "out"
        out.mkdir()
        (out / "history.json").write_text("made there")
        cluster.pods = {"node-0": "Succeeded", "node-1": "Succeeded"}
        cluster.end(NAME, "Complete")

    return act


def test_the_job_is_what_the_hosts_run(run: Callable[[], None], cluster: Cluster, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def act() -> None:
        folder = folder_of(cluster.submitted[-1])
        seen["files"] = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        seen["job"] = Job.read(folder / "job.json")
        complete(cluster)()

    after(cluster, 3, act)
    run()
    (submitted,) = cluster.submitted
    folder = folder_of(submitted)
    assert submitted["metadata"]["name"] == NAME
    assert submitted["metadata"]["labels"] == {
        "app.kubernetes.io/name": "thawline",
        "app.kubernetes.io/component": "train",
    }
    assert submitted["spec"]["runtimeRef"]["name"] == "thawline-trainer-backfill"
    assert submitted["spec"]["runtimeRef"]["kind"] == "TrainingRuntime", "of the namespace"
    trainer = submitted["spec"]["trainer"]
    assert trainer["image"] == "registry.example/thawline/trainer:1"
    assert trainer["numNodes"] == 2
    assert submitted["spec"]["activeDeadlineSeconds"] == 3600
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    assert trainer["command"] == [*torchrun, "-m", "trainer.launch.rank", str(folder / "job.json")]
    wanted = {"cpu": "7.5", "memory": "65536Mi", "nvidia.com/gpu": "2"}
    assert trainer["resourcesPerNode"] == {"limits": wanted, "requests": wanted}
    (patch,) = submitted["spec"]["runtimePatches"]
    (jobs,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert jobs["name"] == "node"
    plain = {**submitted, "spec": {**submitted["spec"]}}
    del plain["spec"]["runtimePatches"]
    schema = CUSTOM_RESOURCES[plain["apiVersion"], plain["kind"]]
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(plain)) == []
    assert jobs["template"]["spec"]["template"]["spec"] == {
        "nodeSelector": {"cloud.example/accelerator": "h200"},
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "pool", "operator": "Equal", "value": "train", "effect": "NoExecute"},
        ],
    }
    assert {"name": "THAWLINE_RUN", "value": "tiny-2024-01-09"} in trainer["env"]
    assert folder.parent == tmp_path / "store" / "jobs"
    assert seen["files"] == ["backbone/manifest.json", "followed", "job.json"]
    assert seen["job"].backbone == str(folder / "backbone")
    assert seen["job"].out == str(folder / "out")
    assert (tmp_path / "out" / "history.json").read_text() == "made there"
    assert cluster.deleted == [NAME]
    assert not folder.exists()


def test_states_and_rank_0_s_lines_are_told_once(
    run: Callable[[], None], cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    looks = 0

    def look(_: str) -> None:
        nonlocal looks
        looks += bool(cluster.submitted)
        if looks == 3:
            cluster.pods = {"node-0": "Running", "node-1": "Pending"}
            cluster.logs["node-0"] = "one\ntwo\nthr"
        if looks == 6:
            cluster.pods = {"node-0": "Running", "node-1": "Running"}
            cluster.logs["node-0"] = "one\ntwo\nthree\nfour"
        if looks == 9:
            complete(cluster)()

    cluster.on_look = look
    run()
    said = capfd.readouterr().err.splitlines()
    assert [line for line in said if line in ("one", "two", "thr", "three", "four")] == ["one", "two", "three", "four"]
    assert [line for line in said if line.startswith(f"TrainJob {NAME}")] == [
        f"TrainJob {NAME}: submitted, 2 hosts",
        f"TrainJob {NAME}: Created",
        f"TrainJob {NAME}: node-0 Running, node-1 Pending",
        f"TrainJob {NAME}: node-0 Running, node-1 Running",
        f"TrainJob {NAME}: node-0 Succeeded, node-1 Succeeded",
    ]


def test_a_failed_host_is_told_with_what_it_said_last(
    run: Callable[[], None], cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def act() -> None:
        cluster.pods = {"node-0": "Running", "node-1": "Failed"}
        cluster.logs = {"node-0": "peer is gone\n", "node-1": "early\n" * 100 + "ValueError: the cause\n"}
        cluster.end(NAME, "Failed")

    after(cluster, 3, act)
    with pytest.raises(RuntimeError, match=f"train: TrainJob {NAME} failed; see what its hosts said above"):
        run()
    said = capfd.readouterr().err
    assert "peer is gone" in said
    assert "node-1 said last" in said
    assert "ValueError: the cause" in said
    assert said.count("early") == 49
    assert cluster.deleted == [NAME]
    assert not (tmp_path / "out").exists()


def test_a_cluster_that_does_not_answer_for_a_while_is_asked_again(
    run: Callable[[], None], cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    def act() -> None:
        cluster.num_refusals = 3
        cluster.on_look = lambda _: complete(cluster)() if NAME in cluster.jobs else None

    after(cluster, 3, act)
    run()
    assert "asking again" in capfd.readouterr().err
    assert cluster.deleted == [NAME]


def test_an_earlier_attempt_s_job_is_deleted_first(run: Callable[[], None], cluster: Cluster) -> None:
    cluster.create({"metadata": {"name": NAME}, "spec": {"runtimeRef": {"name": "thawline-trainer"}}})
    after(cluster, 3, complete(cluster))
    run()
    assert cluster.deleted == [NAME, NAME]
    assert len(cluster.submitted) == 1


def test_a_job_that_another_run_replaced_is_left_to_it(run: Callable[[], None], cluster: Cluster) -> None:
    def act() -> None:
        cluster.create(cluster.submitted[-1])

    after(cluster, 3, act)
    with pytest.raises(RuntimeError, match=f"train: TrainJob {NAME} was deleted, or replaced by another run's"):
        run()
    assert cluster.deleted == []
    assert NAME in cluster.jobs


def test_a_job_that_someone_deleted_is_told(run: Callable[[], None], cluster: Cluster) -> None:
    after(cluster, 3, lambda: cluster.jobs.clear())
    with pytest.raises(RuntimeError, match="was deleted"):
        run()


def test_an_interrupted_step_deletes_its_job(
    run: Callable[[], None], cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    # In that module alone: the lease's thread sleeps too.
    time_there = SimpleNamespace(monotonic=time.monotonic, sleep=interrupt)
    monkeypatch.setattr("trainer.launch.trainjob.time", time_there)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert cluster.deleted == [NAME]
    assert list((tmp_path / "store" / "jobs").iterdir()) == []
