"""Comparing candidate and champion on the held-out day."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from components.run import Run
from trainer.errors import InputError
from trainer.evaluation.report import evaluate
from trainer.registry.models import fetch_champion
from trainer.serving import Scorer
from trainer.windows.manifest import Partition, load_window

_COLUMNS = ("request_id", "user_id", "pin_id", "user_features", "pin_features", "history", "history_actions")


def compare(run: Run, window: str, training_dir: str, tracking_uri: str, out: str) -> None:
    """Scores both models on the same rows and writes the evaluation as JSON to ``out``.

    Args:
        run: Recipe and date.
        window: Path of the window's manifest.
        training_dir: Folder of the candidate's training.
        tracking_uri: Where MLflow keeps runs and models.
        out: Path of the JSON.

    Raises:
        InputError: The window has no held-out day.
    """
    heldout = load_window(window).heldout
    if heldout is None:
        raise InputError(f"{window}: has no held-out day; assemble the window with one")
    frame = _read_rows(heldout, run.recipe.logs.labels)
    candidate = _score(str(Path(training_dir) / "model"), frame)
    with tempfile.TemporaryDirectory() as scratch:
        found = fetch_champion(run.recipe, tracking_uri, scratch)
        champion = _score(found[1], frame) if found else None
    result = evaluate(run.recipe.evaluation, run.recipe.logs.labels, frame, candidate, champion)
    Path(out).write_text(result.to_json())


def _read_rows(partition: Partition, labels: Sequence[str]) -> pd.DataFrame:
    """The day's impressions, without the images and titles that scoring needs none of."""
    files = sorted(Path(partition.path).glob("*.parquet"))
    return pa.concat_tables(pq.read_table(path, columns=[*_COLUMNS, *labels]) for path in files).to_pandas()


def _score(model_dir: str, frame: pd.DataFrame) -> pd.DataFrame:
    return Scorer.load(model_dir).predict(frame)
