"""What the compiled DAGs ask a cluster for, by the recipe."""

from typing import Any

import pytest
import yaml

from pipelines.catalog import DAGS, compiled
from pipelines.recipes import synthetic
from trainer.recipe import Recipe

DIGEST = "sha256:" + "0" * 64
ON_GPUS = {
    "training.num_ranks": "8",
    "cluster.accelerator": "nvidia.com/gpu",
    "cluster.node_labels": "[cloud.google.com/gke-accelerator=nvidia-h100-80gb]",
    "cluster.tolerations": "['nvidia.com/gpu:NoSchedule', 'spot=true:NoExecute']",
    "cluster.training.memory_gib": "64",
    "cluster.training.timeout_s": "7200",
    "cluster.shm_gib": "3.5",
    "cluster.num_retries": "2",
    "cluster.retry_after_s": "30",
}
BY_DIGEST = {"cluster.data_image": f"mirror/data@{DIGEST}", "cluster.trainer_image": f"mirror/trainer@{DIGEST}"}

Tree = dict[str, Any]


class Compiled:
    """A compiled DAG, by task."""

    def __init__(self, name: str, recipe: Recipe) -> None:
        self.spec, platforms = yaml.load_all(compiled(name, recipe).text, yaml.CSafeLoader)
        self._pods = platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        self._components = self.spec["components"]
        self.tasks: dict[str, Tree] = {}
        for part in (self.spec["root"], *self._components.values()):
            for task, content in part.get("dag", {}).get("tasks", {}).items():
                if "executorLabel" in self._components[content["componentRef"]["name"]]:
                    self.tasks[task] = content

    def label(self, task: str) -> str:
        return str(self._components[self.tasks[task]["componentRef"]["name"]]["executorLabel"])

    def container(self, task: str) -> Tree:
        found: Tree = self.spec["deploymentSpec"]["executors"][self.label(task)]["container"]
        return found

    def pod(self, task: str) -> Tree:
        found: Tree = self._pods[self.label(task)]
        return found

    def cached(self) -> set[str]:
        return {name for name, task in self.tasks.items() if task["cachingOptions"].get("enableCache")}


@pytest.fixture(scope="module")
def on_cpus() -> Compiled:
    return Compiled("retrain", synthetic())


@pytest.fixture(scope="module")
def on_gpus() -> Compiled:
    return Compiled("retrain", synthetic().override(ON_GPUS))


def test_every_pod_is_held_as_the_namespace_wants_it(on_cpus: Compiled) -> None:
    for task in on_cpus.tasks:
        pod, container = on_cpus.pod(task), on_cpus.container(task)
        assert pod["securityContext"] == {"runAsUser": "10001", "runAsGroup": "10001", "runAsNonRoot": True}, task
        (mount,) = pod["pvcMount"]
        assert (mount["constant"], mount["mountPath"]) == ("thawline-store", "/store")
        assert int(pod["activeDeadlineSeconds"]) > 0
        assert pod["podMetadata"]["labels"]["app.kubernetes.io/name"] == "thawline"
        assert {"name": "THAWLINE_LOG_FORMAT", "value": "json"} in container["env"]
        limits = container["resources"]
        assert limits["resourceMemoryLimit"] == limits["resourceMemoryRequest"]
        assert float(limits["resourceCpuRequest"]) <= float(limits["resourceCpuLimit"])


def test_without_accelerators_nothing_asks_for_one(on_cpus: Compiled) -> None:
    for task in on_cpus.tasks:
        assert "accelerator" not in on_cpus.container(task)["resources"]
        assert not {"nodeSelector", "tolerations"} & on_cpus.pod(task).keys()
    assert on_cpus.container("train")["image"] == "thawline/trainer-cpu:0.1.0"


def test_training_gets_a_gpu_a_rank_and_scoring_one(on_gpus: Compiled) -> None:
    for task, count in {"train": "8", "pretrain": "8", "evaluate": "1"}.items():
        accelerator = on_gpus.container(task)["resources"]["accelerator"]
        assert (accelerator["resourceType"], accelerator["resourceCount"]) == ("nvidia.com/gpu", count)
        assert on_gpus.container(task)["image"] == "thawline/trainer-gpu:0.1.0"
        pod = on_gpus.pod(task)
        assert pod["nodeSelector"]["labels"] == {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
        assert pod["tolerations"] == [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoExecute"},
        ]
        (shm,) = pod["emptyDirMounts"]
        assert shm == {"volumeName": "shm", "mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": "3584Mi"}
    assert on_gpus.container("train")["resources"]["resourceMemoryLimit"] == "65536Mi"
    for task in on_gpus.tasks.keys() - {"train", "pretrain", "evaluate"}:
        assert "accelerator" not in on_gpus.container(task)["resources"], task
        assert not {"nodeSelector", "tolerations", "emptyDirMounts"} & on_gpus.pod(task).keys(), task
        assert "gpu" not in on_gpus.container(task)["image"], task


def test_metrics_are_served_where_they_are_asked_for(on_gpus: Compiled) -> None:
    assert {"name": "THAWLINE_METRICS_PORT", "value": "9400"} in on_gpus.container("train")["env"]
    assert on_gpus.pod("train")["podMetadata"]["labels"]["thawline/metrics"] == "true"
    assert "thawline/metrics" not in on_gpus.pod("evaluate")["podMetadata"]["labels"]


def test_a_training_on_several_hosts_asks_for_none_of_their_gpus() -> None:
    found = Compiled("retrain", synthetic().override({**ON_GPUS, "cluster.num_nodes": "2"}))
    assert "accelerator" not in found.container("train")["resources"]
    assert found.container("train")["image"] == "thawline/trainer-cpu:0.1.0"
    assert "tolerations" not in found.pod("train")
    assert found.pod("train")["activeDeadlineSeconds"] == "7200"
    assert found.container("evaluate")["resources"]["accelerator"]["resourceCount"] == "1"


def test_what_fails_is_tried_again_for_as_long_as_its_tries_may_take(on_gpus: Compiled) -> None:
    for task in on_gpus.tasks:
        policy = on_gpus.tasks[task]["retryPolicy"]
        assert (policy["maxRetryCount"], policy["backoffDuration"], policy["backoffFactor"]) == (2, "30s", 2.0), task
    assert on_gpus.tasks["train"]["retryPolicy"]["backoffMaxDuration"] == f"{3 * 7200 + 30 + 60}s"
    none = Compiled("retrain", synthetic().override({"cluster.num_retries": "0"}))
    assert not [task for task in none.tasks.values() if "retryPolicy" in task]


def test_a_result_is_reused_for_the_same_inputs_and_the_same_image() -> None:
    assert Compiled("retrain", synthetic()).cached() == set()
    found = Compiled("retrain", synthetic().override(BY_DIGEST))
    assert found.cached() == {"prepare-day", "assemble-window", "keep-backbone", "pretrain", "train"}
    assert found.container("train")["image"] == BY_DIGEST["cluster.trainer_image"]
    assert found.container("plan-window")["image"] == BY_DIGEST["cluster.data_image"]
    # What the results depend on is among the inputs.
    assert {"day", "files"} < found.tasks["prepare-day"]["inputs"]["parameters"].keys()
    assert {"recipe", "window", "backbone"} < found.tasks["train"]["inputs"]["parameters"].keys()
    # It would take the place of all inputs.
    assert not [task for task in found.tasks.values() if "cacheKey" in task["cachingOptions"]]


def test_a_comparison_s_trainings_are_placed_too() -> None:
    found = Compiled("compare", synthetic().override({**ON_GPUS, **BY_DIGEST}))
    assert found.container("train-arm")["resources"]["accelerator"]["resourceCount"] == "8"
    assert not {"train-arm", "open-comparison", "report-comparison", "find-backbone"} & found.cached()


def test_a_store_elsewhere_is_mounted_there() -> None:
    found = Compiled("pretrain", synthetic().override({"cluster.store": "/data/thawline", "cluster.claim": "mine"}))
    (mount,) = found.pod("pretrain")["pvcMount"]
    assert (mount["constant"], mount["mountPath"]) == ("mine", "/data/thawline")
    without = Compiled("pretrain", synthetic().override({"cluster.claim": "null"}))
    assert "pvcMount" not in without.pod("pretrain")


@pytest.mark.parametrize("name", DAGS)
def test_every_dag_ends_with_a_report(name: str) -> None:
    found = Compiled(name, synthetic())
    tasks = found.spec["root"]["dag"]["tasks"]
    report = tasks["report-run"]
    assert report["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert len(tasks) == 2 and report["dependentTasks"] == [name for name in tasks if name != "report-run"]
    assert not report["cachingOptions"].get("enableCache")


def test_a_scheduled_retrain_takes_its_date_from_the_schedule() -> None:
    found = Compiled("scheduled_retrain", synthetic())
    assert found.spec["root"]["inputDefinitions"]["parameters"].keys() == {"recipe", "store", "tracking_uri"}
    inner = next(part for name, part in found.spec["components"].items() if name.startswith("comp-exit-handler"))
    (task,) = inner["dag"]["tasks"].values()
    placeholder = {"runtimeValue": {"constant": "{{$.pipeline_job_schedule_time_utc}}"}}
    assert task["inputs"]["parameters"]["date"] == placeholder
    assert found.tasks["report-run"]["inputs"]["parameters"]["date"] == placeholder
