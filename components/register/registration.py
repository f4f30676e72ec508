"""Deciding on a candidate and registering it."""

from pathlib import Path

from components.register.costs import costs_by_step
from components.run import Run
from components.step import read_steps
from trainer.evaluation.gate import decide
from trainer.evaluation.report import Evaluation
from trainer.registry.models import register_candidate
from trainer.storage.publishing import write_json
from trainer.windows.manifest import load_window
from trainer.windows.quality.record import read_record


def register(run: Run, window: str, backbone: str, tracking_uri: str, training_dir: str, evaluation_path: str) -> None:
    """Registers the candidate with its decision and writes the run's summary.

    Args:
        run: Recipe and date.
        window: Path of the window's manifest.
        backbone: Version of the backbone that the candidate started from.
        tracking_uri: Where MLflow keeps runs and models.
        training_dir: Folder of the candidate's training.
        evaluation_path: JSON of the metrics and lifts.
    """
    evaluation = Evaluation.from_json(Path(evaluation_path).read_text())
    summary = register_candidate(
        run.recipe,
        run.date,
        window,
        training_dir,
        evaluation,
        decide(run.recipe.gate, evaluation),
        backbone,
        run.key(load_window(window).digest, backbone),
        costs_by_step(read_steps(run.folder)),
        read_record(run.folder),
        tracking_uri,
    )
    write_json(run.summary_path, summary)
