"""Registering a backbone."""

from components.run import Run
from trainer.registry.backbones import register_backbone
from trainer.storage.publishing import write_json
from trainer.windows.manifest import load_window


def register(run: Run, window: str, backbone_dir: str, tracking_uri: str) -> str:
    """Registers the backbone and records it in the run's folder.

    Args:
        run: Recipe and date.
        window: Path of the manifest of the backbone's days.
        backbone_dir: Folder of the weights and their description.
        tracking_uri: Where MLflow keeps runs and models.

    Returns:
        The registered version.
    """
    version = register_backbone(run.recipe, backbone_dir, window, tracking_uri)
    manifest = load_window(window)
    record = {
        "model": run.recipe.backbone_name,
        "version": version,
        "window": {
            "days": len(manifest.days),
            "first_day": manifest.first_day.isoformat(),
            "last_day": manifest.last_day.isoformat(),
            "rows": manifest.num_rows,
        },
    }
    write_json(run.backbone_path, record)
    return version
