"""Opening a comparison's parent run."""

from components.comparison import BASELINE, Comparison
from trainer.registry.comparisons import open_parent
from trainer.registry.windows import WINDOW_TAG
from trainer.windows.manifest import load_window


def open_(comparison: Comparison, window: str, backbone: str, tracking_uri: str) -> str:
    """Makes or finds the parent run.

    Args:
        comparison: What is compared.
        window: Path of the longest window's manifest.
        backbone: Version of the backbone.
        tracking_uri: Where MLflow keeps runs and models.

    Returns:
        Its ID.
    """
    run, digest = comparison.run, load_window(window).digest
    facts = {
        "date": run.date.isoformat(),
        "arms": ",".join(comparison.arms),
        "baseline": BASELINE,
        "seeds": ",".join(map(str, comparison.seeds)),
        "window_days": ",".join(map(str, comparison.window_lengths)),
        "backbone_version": backbone,
        WINDOW_TAG: digest,
    }
    return open_parent(run.recipe, comparison.key(digest, backbone), facts, tracking_uri)
