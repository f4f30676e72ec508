"""Training a candidate from a registered backbone."""

import tempfile

from components.launching import launcher_of
from components.run import Run
from trainer.launch import launch_training
from trainer.registry.backbones import fetch_backbone


def train_from_backbone(run: Run, window: str, backbone: str, tracking_uri: str, out: str) -> None:
    """Fetches the backbone, trains, and writes model and history to ``out``.

    Args:
        run: Recipe and date.
        window: Path of the window's manifest.
        backbone: Version of the backbone.
        tracking_uri: Where MLflow keeps runs and models.
        out: Folder for ``model/`` and ``history.json``.
    """
    with tempfile.TemporaryDirectory() as scratch:
        start = fetch_backbone(run.recipe, backbone, tracking_uri, scratch)
        launch_training(run.recipe, window, start, out, launcher_of(run, "train"))
