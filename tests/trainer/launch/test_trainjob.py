"""A training as a `TrainJob`, through the SDK's local-process backend: two hosts of one rank each."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.launch.local_cluster import LocalCluster
from tests.trainer.launch.processes import processes_that_name, wait_for
from tests.trainer.launch.tiny_days import Prepared, assert_same_training
from trainer.errors import InputError
from trainer.launch import Job, launch_training, lease
from trainer.launch.rank import check_world
from trainer.launch.trainjob import TrainJobs
from trainer.recipe import ClusterConfig

# Backbone and training are made once for all of these.
pytestmark = pytest.mark.xdist_group("launches")

REPOSITORY = Path(__file__).parents[3]
TWO_HOSTS = {"cluster.num_nodes": "2"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    # The backend leaves the environments of cancelled jobs behind.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return LocalCluster()


def launcher(store: str, cluster: LocalCluster, *, name: str = "thawline-train-0123") -> TrainJobs:
    return TrainJobs(name=name, store=store, image="thawline/trainer:1", connect=lambda: cluster, look_every_s=0.2)


def names_of(cluster: LocalCluster) -> list[str]:
    return [job.name for job in cluster.list_jobs()]


def leave_an_attempt(store: Path, cluster: LocalCluster, name: str) -> None:
    """A job that runs on, and its folder, as a step that was killed leaves them."""
    from kubeflow.trainer import CustomTrainerContainer
    from kubeflow.trainer.options import Name, TrainerCommand

    folder = store / "jobs" / f"{name}.old"
    folder.mkdir(parents=True)
    waits = [sys.executable, "-u", "-c", "import time\nwhile True: print('.'); time.sleep(0.1)", str(folder)]
    cluster.train(
        ClusterConfig().runtime,
        trainer=CustomTrainerContainer(image="any", num_nodes=1, env={}),
        options=[Name(name=name), TrainerCommand(command=waits)],
    )
    wait_for(lambda: list(processes_that_name(folder)), what="the earlier attempt's process")


def test_two_hosts_train_what_two_ranks_of_one_do_and_an_earlier_attempt_is_replaced(
    prepared: Prepared,
    backbone: Path,
    training: Path,
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("THAWLINE_RUN", "tiny-2024-01-09")
    out = tmp_path / "out"
    jobs = launcher(prepared.store, cluster)
    leave_an_attempt(Path(prepared.store), cluster, jobs.name)
    recipe = prepared.two_ranks().override(TWO_HOSTS)
    launch_training(recipe, prepared.window, str(backbone), str(out), jobs)
    assert_same_training(out, training)
    asked = cluster.submitted[-1]
    assert (asked.image, asked.num_nodes) == ("thawline/trainer:1", 2)
    assert asked.env is not None and asked.env["THAWLINE_RUN"] == "tiny-2024-01-09"
    said = capfd.readouterr().err
    assert "TrainJob thawline-train-0123: submitted, 2 hosts" in said
    assert "epoch 2: loss" in said
    assert said.count("epoch 1: loss") == 1, "of rank 0, once"
    assert names_of(cluster) == []
    assert list((Path(prepared.store) / "jobs").iterdir()) == []
    wait_for(lambda: not list(processes_that_name(Path(prepared.store) / "jobs")), what="no process")


def test_a_rank_that_fails_is_one_failure_with_its_log(
    prepared: Prepared, backbone: Path, cluster: LocalCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Path(shutil.copytree(prepared.store, tmp_path / "store"))
    window = store / Path(prepared.window).relative_to(prepared.store)
    recipe = prepared.two_ranks().override(TWO_HOSTS)
    job = Job(task="train", recipe=recipe, window=str(window), backbone=str(backbone), out=str(tmp_path / "out"))
    for path in store.glob("partitions/**/part-*.parquet"):
        path.unlink()
    with pytest.raises(RuntimeError, match=r"train: TrainJob thawline-train-0123 failed; see .* above"):
        launcher(str(store), cluster).run(job)
    said = capfd.readouterr().err
    assert "Traceback" in said
    assert "part-00000-" in said
    assert names_of(cluster) == []
    assert list((store / "jobs").iterdir()) == []
    assert not (tmp_path / "out").exists()


STEP = """
import sys
from components.step import step
from tests.trainer.launch.local_cluster import LocalCluster
from tests.trainer.launch.test_trainjob import launcher, names_of
from trainer.launch import launch_training
recipe, store, window, backbone, out = sys.argv[1:]
cluster = LocalCluster()
try:
    with step("train", recipe, "2024-01-09", store) as run:
        launch_training(run.recipe, window, backbone, out, launcher(store, cluster))
finally:
    print("left:", names_of(cluster), flush=True)
"""


def test_a_step_that_is_stopped_takes_its_job_with_it(prepared: Prepared, backbone: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(prepared.store, tmp_path / "store"))
    window = store / Path(prepared.window).relative_to(prepared.store)
    recipe = prepared.two_ranks().override({**TWO_HOSTS, "thaw.num_epochs": "10000"})
    errors = tmp_path / "stderr"
    arguments = [recipe.to_json(), str(store), str(window), str(backbone), str(tmp_path / "out")]
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", STEP, *arguments],
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        wait_for(lambda: "epoch 1: loss" in errors.read_text(), what="training")
        assert len(list(processes_that_name(store / "jobs"))) >= 4, "two hosts of torchrun and a rank"
        process.terminate()
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "left: []" in out
    assert list((store / "jobs").iterdir()) == []
    wait_for(lambda: not list(processes_that_name(store / "jobs")), what="no process")


def test_a_store_that_hosts_cannot_share_is_a_users_mistake(
    prepared: Prepared, cluster: LocalCluster, tmp_path: Path
) -> None:
    job = Job(task="pretrain", recipe=prepared.two_ranks(), window=prepared.pretraining, out=str(tmp_path / "out"))
    with pytest.raises(InputError, match=r"gs://bucket/store: .*cluster\.num_nodes.* choose a store") as caught:
        launcher("gs://bucket/store", cluster).run(job)
    assert "\n" not in str(caught.value)


def test_ranks_that_no_step_follows_any_more_leave(
    prepared: Prepared, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As when the step was killed with its host, and could not delete the job."""
    path, recipe = tmp_path / "job.json", prepared.recipe.override({"backbone.num_epochs": "10000"})
    Job(task="pretrain", recipe=recipe, window=prepared.pretraining, out=str(tmp_path / "out")).write(path)
    lease.renew(tmp_path)
    options = ["--standalone", "--nproc-per-node=1"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "tests.trainer.launch.hasty_rank"]
    done = subprocess.run([*command, str(path)], cwd=REPOSITORY, check=False, timeout=240)
    assert done.returncode == 1
    assert "no step follows this job any more: leaving" in capfd.readouterr().err


def test_ranks_that_do_not_come_as_asked_are_told(prepared: Prepared, one_rank: Any) -> None:
    """As when a runtime says otherwise how many processes a host has."""
    with pytest.raises(RuntimeError, match=r"1 ranks came, training\.num_ranks is 2"):
        check_world(prepared.two_ranks())
