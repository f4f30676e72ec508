"""Sections on where a run's steps execute on a cluster, and when it is run there.

They do not shape the model: `trainer.recipe.Recipe.digest` leaves them out, so that a retrain on other machines is the
same retrain.
"""

import re

from pydantic.dataclasses import dataclass

from trainer.recipe.types import STRICT_KEYS, NonNegativeInt, PositiveFloat, PositiveInt

_LABEL = re.compile(r"[A-Za-z0-9./_-]+=[A-Za-z0-9._-]+")
_TAINT = re.compile(r"[A-Za-z0-9./_-]+(=[A-Za-z0-9._-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)")
_ZONE = re.compile(r"[A-Za-z]+([/_+-][A-Za-z0-9]+)*")
_CRON_FIELDS = {"minute": (0, 59), "hour": (0, 23), "day of month": (1, 31), "month": (1, 12), "day of week": (0, 6)}


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class PodConfig:
    """What a pod of one kind asks its host for.

    Attributes:
        num_cpus: CPUs that it asks for.
        max_cpus: CPUs that it may use.
        memory_gib: Memory that it asks for and may use, in GiB: what is promised to others cannot be taken back.
        timeout_s: Seconds after which it is ended.
    """

    num_cpus: PositiveFloat
    max_cpus: PositiveFloat
    memory_gib: PositiveFloat
    timeout_s: PositiveInt

    def __post_init__(self) -> None:
        if self.max_cpus < self.num_cpus:
            raise ValueError(f"max_cpus {self.max_cpus} is below num_cpus {self.num_cpus}")

    @property
    def memory(self) -> str:
        """The memory as Kubernetes writes it."""
        return f"{round(self.memory_gib * 1024)}Mi"


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class ClusterConfig:
    """Where steps execute on a cluster.

    Attributes:
        num_nodes: Hosts of a training; divides ``training.num_ranks``. More than one wants Kubeflow Trainer.
        runtime: The `TrainingRuntime` of several hosts, in the step's namespace; it mounts the store.
        accelerator: Resource that each rank gets one of, such as ``nvidia.com/gpu``; None trains on CPUs.
        node_labels: ``key=value`` of the nodes that training and scoring want.
        tolerations: ``key[=value]:effect`` of the taints that they bear.
        shm_gib: Size of their ``/dev/shm``, in GiB; it lies in memory and counts as theirs.
        lookups: Pods that look something up, decide or write a record.
        data: Pods that prepare a day.
        training: Pods that train, and the hosts of a training on several.
        scoring: Pods that score, evaluate or register a model.
        num_retries: Times that a failed step is tried again: a preempted host is no failure of the run.
        retry_after_s: Seconds before the first of them; each further wait is twice as long.
        data_image: Image that prepares data; None is this version's. Results are cached only for images that are named
            by their digest, since a tag may come to mean other code.
        trainer_image: The same of the image that trains; None is this version's for CPUs or for GPUs.
        store: Where everything we write is kept, as the pods see it: an absolute path.
        claim: Volume claim that is mounted there.
        tracking_uri: Where MLflow is, as the pods see it.
        service_account: Account that they run as.
    """

    num_nodes: PositiveInt = 1
    runtime: str = "thawline-trainer"
    accelerator: str | None = None
    node_labels: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    shm_gib: PositiveFloat = 1.0
    lookups: PodConfig = PodConfig(num_cpus=0.25, max_cpus=1.0, memory_gib=1.0, timeout_s=1800)
    data: PodConfig = PodConfig(num_cpus=1.0, max_cpus=2.0, memory_gib=2.0, timeout_s=3600)
    training: PodConfig = PodConfig(num_cpus=2.0, max_cpus=4.0, memory_gib=6.0, timeout_s=43_200)
    scoring: PodConfig = PodConfig(num_cpus=1.0, max_cpus=2.0, memory_gib=4.0, timeout_s=7200)
    num_retries: NonNegativeInt = 3
    retry_after_s: PositiveInt = 60
    data_image: str | None = None
    trainer_image: str | None = None
    store: str = "/store"
    claim: str | None = "thawline-store"
    tracking_uri: str = "http://mlflow:5000"
    service_account: str = "thawline-step"

    def __post_init__(self) -> None:
        for text in self.node_labels:
            if not _LABEL.fullmatch(text):
                raise ValueError(f"node_labels: '{text}' is no key=value")
        for text in self.tolerations:
            if not _TAINT.fullmatch(text):
                raise ValueError(f"tolerations: '{text}' is no key[=value]:effect, such as nvidia.com/gpu:NoSchedule")
        if not self.store.startswith("/") or self.store.rstrip("/") == "":
            raise ValueError(f"store: '{self.store}' is no absolute path of a folder")
        if self.shm_gib >= self.training.memory_gib:
            raise ValueError(f"shm_gib {self.shm_gib} leaves nothing of training.memory_gib {self.training.memory_gib}")
        if self.shm_gib >= self.scoring.memory_gib:
            raise ValueError(f"shm_gib {self.shm_gib} leaves nothing of scoring.memory_gib {self.scoring.memory_gib}")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class ScheduleConfig:
    """When the daily retrain runs on a cluster: never twice at once, and without catching up on what was missed.

    Attributes:
        cron: Minute, hour, day of month, month and day of week (0 is Sunday); ``*``, lists, ranges and steps.
        time_zone: Zone that the hours are told in, such as ``Europe/Berlin``. Windows are of UTC days regardless: the
            retrain is that of the UTC day that the scheduled time falls on.
    """

    cron: str = "0 6 * * *"
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        fields = self.cron.split()
        if len(fields) != len(_CRON_FIELDS):
            raise ValueError(f"cron: '{self.cron}' has {len(fields)} fields, not {', '.join(_CRON_FIELDS)}")
        for text, (name, (low, high)) in zip(fields, _CRON_FIELDS.items(), strict=True):
            if not all(_is_cron_entry(entry, low, high) for entry in text.split(",")):
                raise ValueError(f"cron: '{text}' is no {name} of {low} to {high}")
        if not _ZONE.fullmatch(self.time_zone):
            raise ValueError(f"time_zone: '{self.time_zone}' is no name of a zone, such as Europe/Berlin")
        minute, hour, day, month, _ = fields
        if self.time_zone != "UTC" and not (minute.isdigit() and hour.isdigit() and (day, month) == ("*", "*")):
            raise ValueError(f"cron: '{self.cron}' names no one time of day, which a time_zone other than UTC needs")


def _is_cron_entry(text: str, low: int, high: int) -> bool:
    """Whether it is ``*``, a number or a range within the bounds, with a step or without."""
    span, _, step = text.partition("/")
    if "/" in text and not (step.isdigit() and int(step) > 0):
        return False
    if span == "*":
        return True
    ends = span.split("-")
    if len(ends) > 2 or not all(end.isdigit() for end in ends):
        return False
    numbers = [int(end) for end in ends]
    return low <= numbers[0] <= numbers[-1] <= high
