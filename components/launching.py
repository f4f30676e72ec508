"""Where a step's training runs: on the step's own host, or on several, by the recipe."""

import hashlib
import json
from typing import Literal

from components.images import TRAINER_GPU_IMAGE, TRAINER_IMAGE
from components.run import Run
from trainer.launch import Launcher, Torchrun
from trainer.launch.trainjob import TrainJobs


def launcher_of(run: Run, task: Literal["pretrain", "train"], part: str = "") -> Launcher:
    """The launcher of a step; each attempt at the step names its job alike, so that a later one replaces an earlier.

    Args:
        run: Recipe, date and store.
        task: What the step trains.
        part: Which of several alike the step is.
    """
    cluster = run.recipe.cluster
    if cluster.num_nodes == 1:
        return Torchrun()
    identity = hashlib.sha256(json.dumps([run.store, run.folder.name, task, part]).encode()).hexdigest()
    image = cluster.trainer_image or (TRAINER_GPU_IMAGE if cluster.accelerator else TRAINER_IMAGE)
    return TrainJobs(name=f"thawline-{task}-{identity[:12]}", store=run.store, image=image)
