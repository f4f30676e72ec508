"""A training as a `TrainJob`, through the SDK's local-process backend: two hosts of one rank each."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainer.launch.local_cluster import LocalCluster
from tests.trainer.launch.processes import processes_that_name, wait_for
from tests.trainer.launch.tiny_days import Prepared, assert_same_training
from trainer.errors import InputError
from trainer.launch import Job, launch_training
from trainer.launch.trainjob import RUNTIME, TrainJobs
from trainer.recipe import Recipe

# Backbone and training are made once for all of these.
pytestmark = pytest.mark.xdist_group("launches")

REPOSITORY = Path(__file__).parents[3]
TWO_HOSTS = {"cluster.num_nodes": "2"}


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
        RUNTIME,
        trainer=CustomTrainerContainer(image="any", num_nodes=1, env={}),
        options=[Name(name=name), TrainerCommand(command=waits)],
    )
    wait_for(lambda: list(processes_that_name(folder)), what="the earlier attempt's process")


def test_two_hosts_train_what_two_ranks_of_one_do_and_an_earlier_attempt_is_replaced(
    prepared: Prepared,
    backbone: Path,
    training: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("THAWLINE_RUN", "tiny-2024-01-09")
    cluster, out = LocalCluster(), tmp_path / "out"
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
    prepared: Prepared, backbone: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Path(shutil.copytree(prepared.store, tmp_path / "store"))
    window = store / Path(prepared.window).relative_to(prepared.store)
    cluster, recipe = LocalCluster(), prepared.two_ranks().override(TWO_HOSTS)
    job = Job(task="train", recipe=recipe, window=str(window), backbone=str(backbone), out=str(tmp_path / "out"))
    for path in store.rglob("part-00000.parquet"):
        path.unlink()
    with pytest.raises(RuntimeError, match=r"train: TrainJob thawline-train-0123 failed; see .* above"):
        launcher(str(store), cluster).run(job)
    said = capfd.readouterr().err
    assert "Traceback" in said
    assert "part-00000.parquet" in said
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
            [sys.executable, "-c", STEP, *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        wait_for(lambda: "epoch 1: loss" in errors.read_text(), what="training")
        assert len(list(processes_that_name(store / "jobs"))) >= 4, "two hosts of torchrun and a rank"
        process.terminate()
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "left: []" in out
    assert list((store / "jobs").iterdir()) == []
    wait_for(lambda: not list(processes_that_name(store / "jobs")), what="no process")


def test_a_store_that_hosts_cannot_share_is_a_users_mistake(prepared: Prepared, tmp_path: Path) -> None:
    job = Job(task="pretrain", recipe=prepared.two_ranks(), window=prepared.pretraining, out=str(tmp_path / "out"))
    with pytest.raises(InputError, match=r"gs://bucket/store: .*cluster\.num_nodes.* choose a store") as caught:
        launcher("gs://bucket/store", LocalCluster()).run(job)
    assert "\n" not in str(caught.value)


def test_ranks_that_do_not_come_as_asked_are_told(
    prepared: Prepared, backbone: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As when a runtime says otherwise how many processes a host has."""
    recipe: Recipe = prepared.two_ranks()
    path = tmp_path / "job.json"
    job = Job(task="train", recipe=recipe, window=prepared.window, backbone=str(backbone), out=str(tmp_path / "out"))
    replace(job, recipe=recipe.override({"training.num_ranks": "3"})).write(path)
    options = ["--standalone", "--nproc-per-node=1"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "trainer.launch.rank", str(path)]
    assert subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 1
    assert "1 ranks came, training.num_ranks is 3" in capfd.readouterr().err
