"""Starts trainings: a job that says what to train, given to whoever runs it, on this host or on several."""

from trainer.errors import InputError
from trainer.launch.job import Job
from trainer.launch.launcher import Launcher, Torchrun
from trainer.model.backbone import open_backbone
from trainer.recipe import Recipe
from trainer.windows.manifest import load_window

__all__ = ["Job", "Launcher", "Torchrun", "launch_pretraining", "launch_training"]


def launch_pretraining(recipe: Recipe, window_path: str, out: str, launcher: Launcher | None = None) -> None:
    """Pretrains a backbone on a window's days; progress goes to stderr.

    Args:
        recipe: What to train, on ``recipe.training.num_ranks`` ranks.
        window_path: Manifest of the backbone's days.
        out: Folder for the backbone, see `trainer.model.backbone`.
        launcher: Who runs it; on this host when None.

    Raises:
        InputError: The window is not there.
        RuntimeError: A rank failed; its traceback is on stderr.
    """
    load_window(window_path)
    (launcher or Torchrun()).run(Job(task="pretrain", recipe=recipe, window=window_path, out=out))


def launch_training(
    recipe: Recipe, window_path: str, backbone: str, out: str, launcher: Launcher | None = None
) -> None:
    """Trains a ranker on a window, starting from a backbone; progress goes to stderr.

    Args:
        recipe: What to train, on ``recipe.training.num_ranks`` ranks.
        window_path: Manifest of the window, with its held-out day.
        backbone: Folder of the backbone.
        out: Folder for ``model/`` (see `trainer.serving`), ``history.json`` and, where the recipe asks for it,
            ``trace.json``.
        launcher: Who runs it; on this host when None.

    Raises:
        InputError: The window is not there or has no held-out day; the backbone is unfinished, changed, or of other
            dimensions than the recipe's.
        RuntimeError: A rank failed; its traceback is on stderr.
    """
    if load_window(window_path).heldout is None:
        raise InputError(f"{window_path}: window has no held-out day to evaluate on; assemble it with one")
    open_backbone(backbone, recipe)
    job = Job(task="train", recipe=recipe, window=window_path, backbone=backbone, out=out)
    (launcher or Torchrun()).run(job)
