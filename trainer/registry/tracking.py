"""The connection to MLflow: always an explicit URI, never MLflow's process-wide one, so nothing lands elsewhere."""

import logging
from collections.abc import Mapping
from pathlib import Path

import mlflow.artifacts
from mlflow import MlflowClient
from mlflow.entities import Experiment
from mlflow.entities.model_registry import ModelVersion, RegisteredModel
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode

from trainer.errors import InputError
from trainer.storage.publishing import folder_aside

_SQLITE = "sqlite:///"


def connect(tracking_uri: str) -> MlflowClient:
    """A client of the tracking server and model registry at `tracking_uri`; MLflow speaks up from warnings on.

    Args:
        tracking_uri: ``sqlite:////abs/path/mlflow.db``, whose folder is made when missing, or a server's URL.
    """
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    database = _sqlite_path(tracking_uri)
    if database:
        database.parent.mkdir(parents=True, exist_ok=True)
    return MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)


def find_experiment(client: MlflowClient, name: str) -> str | None:
    """ID of an experiment, or None.

    Raises:
        InputError: It was deleted, and MLflow keeps its name.
    """
    experiment: Experiment | None = client.get_experiment_by_name(name)
    if experiment is None:
        return None
    if experiment.lifecycle_stage != "active":
        raise InputError(
            f"MLflow experiment '{name}' is deleted; restore it with "
            f"`mlflow experiments restore -x {experiment.experiment_id}`"
        )
    return str(experiment.experiment_id)


def ensure_experiment(client: MlflowClient, name: str) -> str:
    """ID of an experiment, made when missing.

    With SQLite its artifacts lie in ``mlartifacts/<name>`` beside the database; a server chooses the place itself.

    Raises:
        InputError: It was deleted, and MLflow keeps its name.
    """
    found = find_experiment(client, name)
    if found is not None:
        return found
    database = _sqlite_path(client.tracking_uri)
    location = (database.parent / "mlartifacts" / name).as_uri() if database else None
    try:
        return str(client.create_experiment(name, artifact_location=location))
    except MlflowException as error:
        made_meanwhile = find_experiment(client, name) if _exists_already(error) else None
        if made_meanwhile is None:
            raise
        return made_meanwhile


def find_model(client: MlflowClient, name: str) -> RegisteredModel | None:
    """The registered model of that name, with its aliases, or None."""
    return next(iter(client.search_registered_models(f"name = '{name}'")), None)


def add_version(
    client: MlflowClient,
    name: str,
    source: str,
    run_id: str,
    *,
    tags: Mapping[str, str],
    model_id: str | None = None,
    description: str | None = None,
) -> str:
    """Registers `source` as the next version of `name`, which is registered too when missing.

    Args:
        client: Connection.
        name: Registered model.
        source: URI of the version's files.
        run_id: Run that made them.
        tags: Tags of the version.
        model_id: MLflow's ID of the logged model, when there is one.
        description: What people read beside the version.

    Returns:
        The version.
    """
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if not _exists_already(error):
            raise
    version: ModelVersion = client.create_model_version(
        name, source, run_id=run_id, tags=dict(tags), model_id=model_id, description=description
    )
    return str(version.version)


def fetch_version(client: MlflowClient, name: str, version: str, inner: str, out: str) -> str:
    """Copies files of a registered version to this machine, whole or not at all.

    Args:
        client: Connection.
        name: Registered model.
        version: Its version.
        inner: Folder within the version's files; empty for all of them.
        out: Folder to copy into.

    Returns:
        ``<out>/<name>-<version>``, the folder that holds the files; if it is there already, nothing is copied.
    """
    target = Path(out) / f"{name}-{version}"
    if not target.is_dir():
        source = client.get_model_version_download_uri(name, version)
        with folder_aside(target) as aside:
            mlflow.artifacts.download_artifacts(
                f"{source}/{inner}".rstrip("/"), dst_path=str(aside / "download"), tracking_uri=client.tracking_uri
            )
            _lift_only_child(aside)
    return str(target)


def _lift_only_child(folder: Path) -> None:
    """Moves what MLflow downloaded, ``download/<name of the folder>/*``, up into `folder`."""
    (downloaded,) = (folder / "download").iterdir()
    for path in downloaded.iterdir():
        path.rename(folder / path.name)
    downloaded.rmdir()
    downloaded.parent.rmdir()


def _sqlite_path(tracking_uri: str) -> Path | None:
    return Path(tracking_uri.removeprefix(_SQLITE)).resolve() if tracking_uri.startswith(_SQLITE) else None


def _exists_already(error: MlflowException) -> bool:
    return bool(error.error_code == ErrorCode.Name(RESOURCE_ALREADY_EXISTS))
