"""Every DAG by name, and how they become KFP's intermediate representation."""

from pathlib import Path
from typing import Any

from kfp import compiler

from pipelines.compare import compare
from pipelines.pretrain import pretrain
from pipelines.retrain import retrain

DAGS: dict[str, Any] = {"retrain": retrain, "pretrain": pretrain, "compare": compare}


def compile_all(out: Path) -> list[Path]:
    """Writes ``<out>/<name>.yaml`` for every DAG and returns the paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.yaml" for name in DAGS]
    for path, dag in zip(paths, DAGS.values(), strict=True):
        compiler.Compiler().compile(dag, package_path=str(path))
    return paths
