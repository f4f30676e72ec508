"""Comparing candidate and champion on the held-out day."""

import tempfile
from pathlib import Path

from components.heldout import read_rows
from components.run import Run
from trainer.errors import InputError
from trainer.evaluation.report import evaluate
from trainer.registry.models import fetch_champion
from trainer.serving import Scorer
from trainer.windows.manifest import load_window


def compare(run: Run, window: str, training_dir: str, tracking_uri: str, out: str) -> None:
    """Scores both models on the same rows and writes the evaluation as JSON to ``out``.

    Args:
        run: Recipe and date.
        window: Path of the window's manifest.
        training_dir: Folder of the candidate's training.
        tracking_uri: Where MLflow keeps runs and models.
        out: Path of the JSON.

    Raises:
        InputError: The window has no held-out day, or a model looks at images and titles and the day has none.
    """
    heldout = load_window(window).heldout
    if heldout is None:
        raise InputError(f"{window}: has no held-out day; assemble the window with one")
    candidate = Scorer.load(Path(training_dir) / "model")
    with tempfile.TemporaryDirectory() as scratch:
        found = fetch_champion(run.recipe, tracking_uri, scratch)
        champion = Scorer.load(found[1]) if found else None
        columns = {*candidate.columns, *(champion.columns if champion else ())}
        frame = read_rows(heldout, ["request_id", *sorted(columns), *run.recipe.logs.labels])
        scores = candidate.predict(frame)
        champion_scores = champion.predict(frame) if champion else None
    result = evaluate(run.recipe.evaluation, run.recipe.logs.labels, frame, scores, champion_scores)
    Path(out).write_text(result.to_json())
