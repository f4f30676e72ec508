"""Compiled DAGs as pipelines and versions on a server: a DAG is uploaded when its compiled form is new there."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kfp_server_api import V2beta1Experiment, V2beta1Pipeline, V2beta1PipelineVersionReference

from pipelines.catalog import compiled, pipeline_name_of
from pipelines.cluster.client import Client, one_of, where
from trainer.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Version:
    """A compiled DAG on a server.

    Attributes:
        pipeline_id: Of its pipeline.
        version_id: Its own.
        name: Its name there, which says what it holds.
        is_new: Whether it was uploaded just now.
        steps: Names of its tasks that are steps, not DAGs themselves.
    """

    pipeline_id: str
    version_id: str
    name: str
    is_new: bool
    steps: frozenset[str]

    @property
    def reference(self) -> V2beta1PipelineVersionReference:
        """What runs refer to it by."""
        return V2beta1PipelineVersionReference(pipeline_id=self.pipeline_id, pipeline_version_id=self.version_id)


def ensure_version(client: Client, name: str, recipe: Recipe) -> Version:
    """The version of a DAG as it compiles for a recipe; uploaded unless it is there.

    Args:
        client: Of the server.
        name: Of the DAG, one of `pipelines.catalog.DAGS`.
        recipe: Says where its steps execute.
    """
    dag = compiled(name, recipe)
    version_name = f"sha256-{hashlib.sha256(dag.text.encode()).hexdigest()[:16]}"
    pipeline_id = _ensure_pipeline(client, pipeline_name_of(name))
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(dag.text)
        version, is_new = client.find_or_make(
            "upload a DAG",
            lambda: _find_version(client, pipeline_id, version_name),
            client.uploads.upload_pipeline_version,
            str(path),
            name=version_name,
            pipelineid=pipeline_id,
        )
    return Version(
        pipeline_id=pipeline_id,
        version_id=version.pipeline_version_id,
        name=version_name,
        is_new=is_new,
        steps=dag.steps,
    )


def ensure_experiment(client: Client, name: str) -> str:
    """ID of the experiment of that name, which runs of one recipe share; made when missing."""
    experiment, _ = client.find_or_make(
        f"make experiment {name}",
        lambda: find_experiment(client, name),
        client.experiments.experiment_service_create_experiment,
        V2beta1Experiment(display_name=name, namespace=client.server.namespace),
    )
    identifier: str = experiment.experiment_id
    return identifier


def find_experiment(client: Client, name: str) -> Any | None:
    """The experiment of that name, or None."""
    found = client.list(
        "list experiments",
        client.experiments.experiment_service_list_experiments,
        "experiments",
        filter=where(display_name=name),
        **_within(client),
    )
    return one_of(found)


def _ensure_pipeline(client: Client, name: str) -> str:
    pipeline, _ = client.find_or_make(
        f"make pipeline {name}",
        lambda: _find_pipeline(client, name),
        client.pipelines.pipeline_service_create_pipeline,
        V2beta1Pipeline(display_name=name, namespace=client.server.namespace),
    )
    identifier: str = pipeline.pipeline_id
    return identifier


def _find_pipeline(client: Client, name: str) -> Any | None:
    found = client.list(
        "list pipelines",
        client.pipelines.pipeline_service_list_pipelines,
        "pipelines",
        filter=where(display_name=name),
        **_within(client),
    )
    return one_of(found)


def _find_version(client: Client, pipeline_id: str, name: str) -> Any | None:
    found = client.list(
        "list versions of a pipeline",
        client.pipelines.pipeline_service_list_pipeline_versions,
        "pipeline_versions",
        pipeline_id,
        filter=where(display_name=name),
    )
    return one_of(found)


def _within(client: Client) -> dict[str, str]:
    return {} if client.server.namespace is None else {"namespace": client.server.namespace}
