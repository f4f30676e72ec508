"""Registered backbones: folders of pretrained tables and network, versioned by the days that they have seen."""

import hashlib
import shutil
from datetime import date
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion

from trainer.errors import InputError
from trainer.recipe import Recipe
from trainer.registry.tracking import add_version, connect, ensure_experiment, fetch_version
from trainer.registry.windows import WINDOW_TAG
from trainer.storage.publishing import read_text
from trainer.windows.manifest import load_window

_FIRST_DAY = "first_day"
_LAST_DAY = "last_day"
_CHECKSUM = "checksum"
_FOLDER = "backbone"


def find_backbone(recipe: Recipe, first_window_day: date, tracking_uri: str) -> str:
    """The newest registered backbone that has seen no day of the window.

    Args:
        recipe: The recipe of the run.
        first_window_day: The window's oldest training day.
        tracking_uri: Where MLflow is.

    Returns:
        Its version, or an empty string when there is none. Of those that end on the same day, the latest registered.
    """
    before = [
        version
        for version in _versions(connect(tracking_uri), recipe)
        if date.fromisoformat(version.tags[_LAST_DAY]) < first_window_day
    ]
    newest = max(before, key=lambda version: (version.tags[_LAST_DAY], int(version.version)), default=None)
    return "" if newest is None else str(newest.version)


def register_backbone(recipe: Recipe, backbone_dir: str, window_path: str, tracking_uri: str) -> str:
    """Registers a pretrained backbone; the same files over the same days are registered once.

    Args:
        recipe: The recipe of the run; names experiment and model.
        backbone_dir: Folder of ``backbone.json`` and ``*.safetensors``.
        window_path: Manifest of the days that it was pretrained on.
        tracking_uri: Where MLflow is.

    Returns:
        Its version.
    """
    client = connect(tracking_uri)
    window = load_window(window_path)
    tags = {
        _FIRST_DAY: window.first_day.isoformat(),
        _LAST_DAY: window.last_day.isoformat(),
        _CHECKSUM: checksum(Path(backbone_dir)),
    }
    for version in _versions(client, recipe):
        if tags.items() <= version.tags.items():
            return str(version.version)
    experiment_id = ensure_experiment(client, recipe.backbone_name)
    name = f"{window.first_day} to {window.last_day}"
    run = client.create_run(experiment_id, run_name=name, tags={**tags, WINDOW_TAG: window.digest})
    try:
        client.log_artifacts(run.info.run_id, backbone_dir, _FOLDER)
        client.log_text(run.info.run_id, recipe.to_json(), "recipe.json")
        client.log_text(run.info.run_id, read_text(window_path), "window.json")
        source = f"{run.info.artifact_uri}/{_FOLDER}"
        version_number = add_version(client, recipe.backbone_name, source, run.info.run_id, tags=tags)
    except BaseException:
        client.delete_run(run.info.run_id)
        raise
    client.set_terminated(run.info.run_id)
    return version_number


def fetch_backbone(recipe: Recipe, version: str, tracking_uri: str, out: str) -> str:
    """Copies a registered backbone to this machine and checks that it is what was registered.

    Args:
        recipe: The recipe of the run.
        version: Its version.
        tracking_uri: Where MLflow is.
        out: Folder to copy into.

    Returns:
        The folder of ``backbone.json`` and ``*.safetensors``.

    Raises:
        InputError: There is no such version, or its files are not those that were registered.
    """
    client = connect(tracking_uri)
    named = f"backbone '{recipe.backbone_name}' version {version}"
    registered = next((found for found in _versions(client, recipe) if str(found.version) == version), None)
    if registered is None:
        raise InputError(f"{named}: not registered; run `thawline pretrain`")
    folder = fetch_version(client, recipe.backbone_name, version, "", out)
    if checksum(Path(folder)) != registered.tags[_CHECKSUM]:
        shutil.rmtree(folder)
        raise InputError(f"{named}: its files are damaged; delete that version in MLflow and run `thawline pretrain`")
    return folder


def checksum(folder: Path) -> str:
    """SHA-256 over the names and bytes of all files in `folder`, 64 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _versions(client: MlflowClient, recipe: Recipe) -> list[ModelVersion]:
    return list(client.search_model_versions(f"name = '{recipe.backbone_name}'"))
