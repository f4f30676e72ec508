from dataclasses import replace
from datetime import date, timedelta

from components.images import TRAINER_GPU_IMAGE
from components.launching import launcher_of
from components.run import Run
from pipelines.recipes import synthetic
from trainer.launch import Torchrun
from trainer.launch.trainjob import TrainJobs

HOSTS = {"training.num_ranks": "4", "cluster.num_nodes": "2", "cluster.accelerator": "nvidia.com/gpu"}


def run_of(settings: dict[str, str]) -> Run:
    return Run(recipe=synthetic().override(settings), date=date(2024, 1, 9), store="/store")


def jobs_of(run: Run, part: str = "") -> TrainJobs:
    launcher = launcher_of(run, "train", part)
    assert isinstance(launcher, TrainJobs)
    return launcher


def test_one_host_is_the_step_s_own() -> None:
    assert launcher_of(run_of({"training.num_ranks": "4"}), "train") == Torchrun()


def test_several_hosts_share_the_store() -> None:
    jobs = jobs_of(run_of(HOSTS))
    assert (jobs.store, jobs.image) == ("/store", TRAINER_GPU_IMAGE)
    mirror = "registry.example/trainer@sha256:0123"
    assert jobs_of(run_of({**HOSTS, "cluster.trainer_image": mirror})).image == mirror


def test_an_attempt_s_job_has_the_name_of_the_one_before_and_of_no_other_step() -> None:
    run = run_of(HOSTS)
    name = jobs_of(run).name
    assert jobs_of(run_of(HOSTS)).name == name
    assert len(name) <= 40, "what Kubernetes appends must fit a host's name"
    pretraining = launcher_of(run, "pretrain")
    assert isinstance(pretraining, TrainJobs)
    others = [
        pretraining.name,
        jobs_of(run, "delayed-10d-seed0").name,
        jobs_of(replace(run, date=run.date + timedelta(days=1))).name,
        jobs_of(replace(run, store="/elsewhere")).name,
        jobs_of(run_of({**HOSTS, "training.seed": "5"})).name,
    ]
    assert len({name, *others}) == 6
