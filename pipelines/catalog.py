"""Every DAG by name, and how they become KFP's intermediate representation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf.json_format import MessageToDict
from kfp import compiler

from pipelines.compare import compare
from pipelines.places import OnCluster, Place
from pipelines.pretrain import pretrain
from pipelines.retrain import retrain, scheduled_retrain
from trainer.recipe import ClusterConfig, Recipe

DAGS: dict[str, Callable[[Place], Any]] = {
    "retrain": retrain,
    "scheduled_retrain": scheduled_retrain,
    "pretrain": pretrain,
    "compare": compare,
}
"""Each makes the DAG, given where its steps execute."""


def pipeline_name_of(name: str) -> str:
    """What a DAG is called on a cluster."""
    return f"thawline-{name.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class CompiledDag:
    """A DAG as a cluster runs it.

    Attributes:
        text: KFP's intermediate representation, YAML.
        steps: Names of its tasks that are steps, not DAGs themselves.
    """

    text: str
    steps: frozenset[str]


def compiled(name: str, recipe: Recipe) -> CompiledDag:
    """Compiles a DAG, unless it was before.

    Args:
        name: One of `DAGS`.
        recipe: Says where its steps execute; it is a parameter of the DAG besides.
    """
    return _compiled(name, recipe.cluster, recipe.training.num_ranks)


@lru_cache
def _compiled(name: str, cluster: ClusterConfig, num_ranks: int) -> CompiledDag:
    dag = DAGS[name](OnCluster(cluster, num_ranks=num_ranks))
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.yaml"
        compiler.Compiler().compile(dag, package_path=str(path))
        text = path.read_text()
    return CompiledDag(text=text, steps=frozenset(_steps(MessageToDict(dag.pipeline_spec))))


def _steps(spec: dict[str, Any]) -> Iterator[str]:
    components = spec["components"]
    for part in (spec["root"], *components.values()):
        for name, task in part.get("dag", {}).get("tasks", {}).items():
            if "dag" not in components[task["componentRef"]["name"]]:
                yield name


def compile_all(out: Path, recipe: Recipe) -> list[Path]:
    """Writes ``<out>/<name>.yaml`` for every DAG and returns the paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.yaml" for name in DAGS]
    for name, path in zip(DAGS, paths, strict=True):
        path.write_text(compiled(name, recipe).text)
    return paths
