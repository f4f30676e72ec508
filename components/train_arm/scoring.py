"""Training a case and scoring the held-out rows with it."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa

from components.heldout import read_rows
from trainer.launch import Launcher, launch_training
from trainer.recipe import Recipe
from trainer.serving import Scorer
from trainer.storage.publishing import folder_aside, write_json, write_parquet
from trainer.windows.manifest import load_window

_KEYS = ("request_id", "user_id", "pin_id")


def train_and_score(
    recipe: Recipe, window: str, backbone_dir: str, launcher: Launcher, facts: dict[str, Any], target: Path
) -> None:
    """Publishes ``case.json``, ``history.json`` and ``predictions.parquet`` as one folder; the model is dropped.

    The predictions are the held-out rows in their order: request_id, user_id, pin_id, save, and score, the predicted
    probability of a save.

    Args:
        recipe: What to train.
        window: Path of the window's manifest.
        backbone_dir: Folder of the backbone.
        launcher: Who runs the training.
        facts: What ``case.json`` shall hold.
        target: The folder.
    """
    with TemporaryDirectory() as scratch:
        training = Path(scratch)
        launch_training(recipe, window, backbone_dir, scratch, launcher)
        predictions = _predict(training / "model", window)
        with folder_aside(target) as aside:
            write_json(aside / "case.json", facts)
            shutil.copy(training / "history.json", aside)
            write_parquet(aside / "predictions.parquet", pa.Table.from_pandas(predictions, preserve_index=False))


def _predict(model_dir: Path, window: str) -> pd.DataFrame:
    heldout = load_window(window).heldout
    assert heldout is not None, "training refuses a window without one"
    scorer = Scorer.load(model_dir)
    rows = read_rows(heldout, [*dict.fromkeys([*_KEYS, *scorer.columns]), "save"])
    return rows[[*_KEYS, "save"]].assign(score=scorer.predict(rows)["save"])
