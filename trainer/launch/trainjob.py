"""The launcher of several hosts: a Kubeflow `TrainJob`, a pod a host, submitted, followed and deleted by the step.

The job's pods see the store at the same path as the step does, and nothing else of the step's file system; so what they
read and write lies in a folder of the store, which goes when the step is done. The job goes with the step too: deleted
when it ends, fails or is stopped, replaced when the step is tried again, and left by its ranks when the step was killed
(`trainer.launch.lease`).
"""

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from trainer import logs
from trainer.errors import InputError
from trainer.launch import lease
from trainer.launch.job import Job, torchrun
from trainer.recipe import ClusterConfig, Recipe
from trainer.storage.uris import local_path

if TYPE_CHECKING:
    from kubeflow.trainer import TrainerClient
    from kubeflow.trainer.options import RuntimePatch
    from kubeflow.trainer.types.types import TrainJob

_RANK_0 = "node-0"
_NUM_LAST_LINES = 50
_PATIENCE_S = 300.0
"""How long a cluster may not answer before a training that runs on it is given up."""


def cluster_client() -> "TrainerClient":
    """A client of the cluster that this process runs in, or that its kube-config names; in its own namespace.

    The SDK is silenced below errors: it warns at length that it may not read its control plane's version.
    """
    from kubeflow.trainer import TrainerClient

    logging.getLogger("kubeflow").setLevel(logging.ERROR)
    return TrainerClient()


@dataclass(frozen=True, kw_only=True)
class TrainJobs:
    """Runs a job on several hosts.

    Attributes:
        name: Of the `TrainJob`; the same for each attempt at one step, another for any other step.
        store: Folder that all hosts see at this path.
        image: What the hosts run; this step's own.
        connect: Makes the client of the cluster.
        look_every_s: Seconds between looks at the job.
    """

    name: str
    store: str
    image: str
    connect: "Callable[[], TrainerClient]" = field(default=cluster_client)
    look_every_s: float = 5.0

    def run(self, job: Job) -> None:
        """See `trainer.launch.launcher.Launcher`; whatever ends this call early deletes the `TrainJob`.

        Raises:
            InputError: The store is no folder that hosts could share.
        """
        client = self.connect()
        with self._folder() as folder:
            shared = _onto(folder, job)
            lease.renew(folder)
            _clear(client, self.name)
            created: datetime | None = None
            try:
                self._submit(client, shared, folder)
                created = client.get_job(self.name).creation_timestamp
                _Follower(client, self.name, created, folder).follow(job.task, every_s=self.look_every_s)
            finally:
                _let_go(client, self.name, created)
            shutil.copytree(shared.out, job.out, dirs_exist_ok=True)

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """A folder on the store for this attempt; those of attempts that were killed go too."""
        try:
            jobs = local_path(self.store).absolute() / "jobs"
            jobs.mkdir(parents=True, exist_ok=True)
            for left in jobs.glob(f"{self.name}.*"):
                shutil.rmtree(left, ignore_errors=True)
            folder = Path(mkdtemp(prefix=f"{self.name}.", dir=jobs))
        except (InputError, OSError) as error:
            raise InputError(
                f"{self.store}: the hosts of cluster.num_nodes share files there ({error}); choose a store that is a "
                "writable folder, mounted at one path everywhere"
            ) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _submit(self, client: "TrainerClient", job: Job, folder: Path) -> None:
        from kubeflow.trainer import CustomTrainerContainer
        from kubeflow.trainer.options import ActiveDeadlineSeconds, Labels, Name, TrainerCommand

        path = folder / "job.json"
        job.write(path)
        ours = {key: value for key, value in os.environ.items() if key.startswith("THAWLINE_")}
        client.train(
            runtime=job.recipe.cluster.runtime,
            trainer=CustomTrainerContainer(
                image=self.image,
                num_nodes=job.recipe.cluster.num_nodes,
                resources_per_node=_resources(job.recipe),
                env={**ours, "OMP_NUM_THREADS": "1"},
            ),
            options=[
                Name(name=self.name),
                Labels(labels={"app.kubernetes.io/name": "thawline", "app.kubernetes.io/component": job.task}),
                TrainerCommand(command=torchrun(job, path)),
                ActiveDeadlineSeconds(seconds=job.recipe.cluster.training.timeout_s),
                *_placement(job.recipe.cluster),
            ],
        )
        logs.say(f"TrainJob {self.name}: submitted, {job.recipe.cluster.num_nodes} hosts")


class _Follower:
    """Follows a `TrainJob` that was created at a known time."""

    def __init__(self, client: "TrainerClient", name: str, created: datetime, folder: Path) -> None:
        self._client, self._name, self._created, self._folder = client, name, created, folder
        self._shown_state = ""
        self._num_shown = 0

    def follow(self, task: str, *, every_s: float) -> None:
        """Shows the states of the hosts and what rank 0 says, until the job is complete.

        Raises:
            RuntimeError: It failed, is gone, or the cluster does not answer any more.
        """
        answered_s = time.monotonic()
        while True:
            lease.renew(self._folder)
            try:
                job = _find(self._client, self._name)
                self._show(job)
                answered_s = time.monotonic()
            except (RuntimeError, TimeoutError) as error:
                if time.monotonic() - answered_s > _PATIENCE_S:
                    raise
                logs.say(f"TrainJob {self._name}: {error}; asking again", level="warning")
            else:
                if job is None or job.creation_timestamp != self._created:
                    raise RuntimeError(f"{task}: TrainJob {self._name} was deleted, or replaced by another run's")
                if job.status == "Failed":
                    self._show_failed_hosts(job)
                    raise RuntimeError(f"{task}: TrainJob {self._name} failed; see what its hosts said above")
                if job.status == "Complete":
                    return
            time.sleep(every_s)

    def _show(self, job: "TrainJob | None") -> None:
        if job is None:
            return
        state = ", ".join(sorted(f"{step.name} {step.status}" for step in job.steps)) or job.status
        if state != self._shown_state:
            logs.say(f"TrainJob {self._name}: {state}")
            self._shown_state = state
        if lines := self._said_by(_RANK_0):
            # The last line may not be whole yet. A log that is shorter than before was rotated.
            num_whole = len(lines) if job.status in ("Complete", "Failed") else len(lines) - 1
            _pass_on(lines[self._num_shown if self._num_shown <= num_whole else 0 : num_whole])
            self._num_shown = num_whole

    def _show_failed_hosts(self, job: "TrainJob") -> None:
        for step in job.steps:
            if step.name != _RANK_0 and step.status == "Failed":
                logs.say(f"TrainJob {self._name}: {step.name} said last:", level="error")
                _pass_on(self._said_by(step.name)[-_NUM_LAST_LINES:])

    def _said_by(self, host: str) -> list[str]:
        """Lines; none while there is no log, on which nothing else shall depend."""
        try:
            return list(self._client.get_job_logs(self._name, step=host))
        except (RuntimeError, TimeoutError):
            return []


def _pass_on(lines: Sequence[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def _find(client: "TrainerClient", name: str) -> "TrainJob | None":
    try:
        return client.get_job(name)
    except RuntimeError as error:
        if _is_absent(error):
            return None
        raise


def _is_absent(error: RuntimeError) -> bool:
    """Whether the cluster answered that there is no such thing; the SDK wraps its answers."""
    return getattr(error.__cause__, "status", None) == 404


def _clear(client: "TrainerClient", name: str) -> None:
    """Deletes what an earlier attempt left running, and waits until it is gone."""
    if _find(client, name) is None:
        return
    client.delete_job(name)
    asked_s = time.monotonic()
    while _find(client, name) is not None:
        if time.monotonic() - asked_s > _PATIENCE_S:
            raise RuntimeError(f"TrainJob {name}: an earlier attempt's, still there {_PATIENCE_S:.0f} s after deletion")
        time.sleep(1.0)


def _let_go(client: "TrainerClient", name: str, created: datetime | None) -> None:
    """Deletes the job that was created then, or, that being unknown, whichever has its name.

    A cluster that does not answer takes nothing from what is known of the training; its ranks miss the lease.
    """
    try:
        found = _find(client, name)
        if found is not None and created in (None, found.creation_timestamp):
            client.delete_job(name)
    except (RuntimeError, TimeoutError) as error:
        if not (isinstance(error, RuntimeError) and _is_absent(error)):
            logs.say(f"TrainJob {name}: not deleted ({error})", level="warning")


def _resources(recipe: Recipe) -> dict[str, str]:
    """What each host asks for and is limited to: the SDK takes one number for both."""
    cluster = recipe.cluster
    pod = cluster.training
    resources = {"cpu": f"{pod.max_cpus:g}", "memory": pod.memory}
    if cluster.accelerator is not None:
        resources[cluster.accelerator] = str(recipe.training.num_ranks // cluster.num_nodes)
    return resources


def _placement(cluster: ClusterConfig) -> "list[RuntimePatch]":
    """Which nodes the hosts want and bear."""
    from kubeflow.trainer.options import (
        JobSetSpecPatch,
        JobSetTemplatePatch,
        JobSpecPatch,
        JobTemplatePatch,
        PodSpecPatch,
        PodTemplatePatch,
        ReplicatedJobPatch,
        RuntimePatch,
        TrainingRuntimeSpecPatch,
    )

    if not cluster.node_labels and not cluster.tolerations:
        return []
    spec = PodSpecPatch(
        node_selector=dict(label.split("=", 1) for label in cluster.node_labels) or None,
        tolerations=[_toleration(text) for text in cluster.tolerations] or None,
    )
    template = JobTemplatePatch(spec=JobSpecPatch(template=PodTemplatePatch(spec=spec)))
    jobs = JobSetSpecPatch(replicated_jobs=[ReplicatedJobPatch(name="node", template=template)])
    return [RuntimePatch(training_runtime_spec=TrainingRuntimeSpecPatch(template=JobSetTemplatePatch(spec=jobs)))]


def _toleration(text: str) -> dict[str, str]:
    """``key[=value]:effect`` as Kubernetes writes it."""
    taint, effect = text.rsplit(":", 1)
    key, has_value, value = taint.partition("=")
    if has_value:
        return {"key": key, "operator": "Equal", "value": value, "effect": effect}
    return {"key": key, "operator": "Exists", "effect": effect}


def _onto(folder: Path, job: Job) -> Job:
    """The job with all it reads and writes on the store."""
    there = replace(job, window=str(local_path(job.window).absolute()), out=str(folder / "out"))
    if job.backbone:
        shutil.copytree(job.backbone, folder / "backbone")
        there = replace(there, backbone=str(folder / "backbone"))
    return there
