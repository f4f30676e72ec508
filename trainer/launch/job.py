"""What a training's ranks are to do, as a file that each of them reads, and the command that starts them."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from trainer.recipe import Recipe
from trainer.storage.publishing import write_json


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training.

    Attributes:
        task: Which.
        recipe: What to train, and on how many ranks and hosts.
        window: Path of the window's manifest.
        out: Folder for what it leaves.
        backbone: Folder of the backbone to start from; empty for a pretraining.
    """

    task: Literal["pretrain", "train"]
    recipe: Recipe
    window: str
    out: str
    backbone: str = ""

    def write(self, path: Path) -> None:
        """Writes it as JSON; `read` reads it back."""
        write_json(path, {**asdict(self), "recipe": self.recipe.to_json()})

    @classmethod
    def read(cls, path: Path) -> "Job":
        """Reads what `write` wrote."""
        content = json.loads(path.read_text())
        return cls(**{**content, "recipe": Recipe.from_json(content["recipe"])})


def torchrun(job: Job, path: Path, *options: str) -> list[str]:
    """The command that starts the ranks of one host.

    Args:
        job: The job.
        path: Where it was written; every host reads it there.
        *options: Of ``torchrun``, such as how the hosts meet; without, its ``PET_*`` environment says it.
    """
    num_ranks = job.recipe.training.num_ranks // job.recipe.cluster.num_nodes
    launcher = [sys.executable, "-m", "torch.distributed.run", *options, f"--nproc-per-node={num_ranks}"]
    return [*launcher, "-m", "trainer.launch.rank", str(path)]
