"""Looking up a finished retrain."""

from components.run import Run
from trainer.registry.models import find_finished
from trainer.storage.publishing import write_json
from trainer.windows.manifest import load_window


def restore_summary(run: Run, window: str, backbone: str, tracking_uri: str) -> bool:
    """Whether this retrain was finished before; if so its summary lies in the run's folder again.

    Args:
        run: Recipe and date.
        window: Path of the window's manifest.
        backbone: Version of the backbone; empty when there is none, and then nothing can be finished.
        tracking_uri: Where MLflow keeps runs and models.
    """
    if not backbone:
        return False
    summary = find_finished(run.recipe, run.key(load_window(window).digest, backbone), tracking_uri)
    if summary is None:
        return False
    write_json(run.summary_path, summary)
    return True
