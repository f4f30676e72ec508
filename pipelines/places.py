"""Where a DAG's steps execute: as a runner of this machine runs them, or in pods of a cluster, by the recipe.

**What is cached.** Kubeflow Pipelines takes a step's earlier result when all of these are the same: its inputs, its
image as it is named, its command, and the claims that it mounts. So a result is reused only where

- the image is named by its digest: a tag may come to mean other code, so steps of images with a tag run each time;
- the inputs say all that the step reads (``is_pure``). `prepare_day` reads one day of the window: its inputs name the
  day and the files that the log holds for it. `assemble_window` reads prepared days, `pretrain` and `train` a window's
  manifest, whose paths carry the hashes of what they hold; `train` also reads a backbone, which a version names for
  good.

Steps that look up what may change (the log, MLflow's registry, the champion), that register or that report are never
cached, nor is `check_window`, which leaves its page in the run's folder. ``cache_key`` is not set: it would replace the
inputs, one key for all days of a window (2.17.0 ignores it).

**What a pod cannot be told from here** (kfp-kubernetes 2.17.3): a read-only root, a priority class, a group that owns
its volumes. `manifests/kfp` has the server add them to every pod; the server itself drops all capabilities.
"""

from typing import Any, Literal, Protocol

from kfp import dsl, kubernetes

from components.images import DATA_IMAGE, IMAGE_USER, TRAINER_GPU_IMAGE, TRAINER_IMAGE
from trainer.logs import FORMAT_VARIABLE
from trainer.recipe import ClusterConfig, PodConfig
from trainer.telemetry import PORT_VARIABLE

Kind = Literal["lookup", "data", "training", "scoring", "record"]
"""What a step does, by what it needs: look-ups and records need little, training and scoring hold a model in memory."""

METRICS_PORT = 9400
"""Where pods that train serve their metrics; `manifests/components/monitoring` asks there."""

_ON_ACCELERATORS = ("training", "scoring")
_BACKOFF_FACTOR = 2


class Place(Protocol):
    """Puts a step where it executes.

    Attributes:
        run_created_at: What to give a step that asks when its run began; empty where nobody tells.
    """

    run_created_at: str

    def __call__(self, task: Any, kind: Kind, *, is_pure: bool = False) -> Any:
        """Sets what the step's task needs there, and returns it.

        Args:
            task: Of the DAG.
            kind: What the step does.
            is_pure: Whether its inputs say all that it reads.
        """
        ...


class OnThisMachine:
    """Here: a runner gives steps what there is, and a failed step is not tried again."""

    run_created_at = ""  # kfp's local runner (2.17) fails on the placeholder

    def __call__(self, task: Any, kind: Kind, *, is_pure: bool = False) -> Any:
        """See `Place`."""
        return task


class OnCluster:
    """In pods of a cluster.

    Args:
        cluster: What they need.
        num_ranks: Of a training.
    """

    run_created_at = dsl.PIPELINE_JOB_CREATE_TIME_UTC_PLACEHOLDER

    def __init__(self, cluster: ClusterConfig, *, num_ranks: int) -> None:
        self._cluster = cluster
        self._num_ranks = num_ranks

    def __call__(self, task: Any, kind: Kind, *, is_pure: bool = False) -> Any:
        """See `Place`."""
        cluster, pod = self._cluster, self._pod(kind)
        num_accelerators = self._num_accelerators(kind)
        image = _image(task.container_spec.image, cluster, on_gpu=num_accelerators > 0)
        task.set_container_image(image)
        task.set_caching_options(is_pure and "@sha256:" in image)
        task.set_env_variable(FORMAT_VARIABLE, "json")
        task.set_cpu_request(f"{pod.num_cpus:g}").set_cpu_limit(f"{pod.max_cpus:g}")
        task.set_memory_request(pod.memory).set_memory_limit(pod.memory)
        if num_accelerators:
            task.set_accelerator_type(cluster.accelerator).set_accelerator_limit(num_accelerators)
        self._try_again(task, pod.timeout_s)
        self._adorn(task, kind, pod)
        return task

    def _pod(self, kind: Kind) -> PodConfig:
        cluster = self._cluster
        # Its hosts are those of a `TrainJob`; the step only follows it.
        if kind == "training" and cluster.num_nodes > 1:
            return PodConfig(
                num_cpus=cluster.lookups.num_cpus,
                max_cpus=cluster.lookups.max_cpus,
                memory_gib=cluster.lookups.memory_gib,
                timeout_s=cluster.training.timeout_s,
            )
        pods = {
            "lookup": cluster.lookups,
            "data": cluster.data,
            "training": cluster.training,
            "scoring": cluster.scoring,
            "record": cluster.scoring,
        }
        return pods[kind]

    def _num_accelerators(self, kind: Kind) -> int:
        if self._cluster.accelerator is None or kind not in _ON_ACCELERATORS:
            return 0
        if kind == "training":
            return self._num_ranks if self._cluster.num_nodes == 1 else 0
        return 1

    def _try_again(self, task: Any, timeout_s: int) -> None:
        num_retries, first_s = self._cluster.num_retries, self._cluster.retry_after_s
        if not num_retries:
            return
        # Counted from the first try's start: Argo's own limit, an hour, would give up a training that ran for longer.
        waits_s = first_s * (_BACKOFF_FACTOR**num_retries - 1)
        task.set_retry(
            num_retries,
            backoff_duration=f"{first_s}s",
            backoff_factor=float(_BACKOFF_FACTOR),
            backoff_max_duration=f"{(num_retries + 1) * timeout_s + waits_s}s",
        )

    def _adorn(self, task: Any, kind: Kind, pod: PodConfig) -> None:
        cluster = self._cluster
        kubernetes.set_timeout(task, pod.timeout_s)
        kubernetes.set_security_context(task, run_as_user=IMAGE_USER, run_as_group=IMAGE_USER, run_as_non_root=True)
        kubernetes.add_pod_label(task, "app.kubernetes.io/name", "thawline")
        kubernetes.add_pod_label(task, "app.kubernetes.io/component", kind)
        if cluster.claim is not None:
            kubernetes.mount_pvc(task, cluster.claim, cluster.store)
        if kind not in _ON_ACCELERATORS or (kind == "training" and cluster.num_nodes > 1):
            return
        if kind == "training":
            task.set_env_variable(PORT_VARIABLE, str(METRICS_PORT))
            kubernetes.add_pod_label(task, "thawline/metrics", "true")
        kubernetes.empty_dir_mount(
            task, "shm", "/dev/shm", medium="Memory", size_limit=f"{round(cluster.shm_gib * 1024)}Mi"
        )
        for text in cluster.node_labels:
            key, _, value = text.partition("=")
            kubernetes.add_node_selector(task, key, value)
        for text in cluster.tolerations:
            taint, _, effect = text.rpartition(":")
            key, is_equal, value = taint.partition("=")
            if is_equal:
                kubernetes.add_toleration(task, key=key, operator="Equal", value=value, effect=effect)
            else:
                kubernetes.add_toleration(task, key=key, operator="Exists", effect=effect)


def _image(default: str, cluster: ClusterConfig, *, on_gpu: bool) -> str:
    """The image of a step that runs in `default` unless the recipe says otherwise."""
    if default == DATA_IMAGE:
        return cluster.data_image or default
    assert default == TRAINER_IMAGE, "each step runs in one of our images"
    return cluster.trainer_image or (TRAINER_GPU_IMAGE if on_gpu else default)
