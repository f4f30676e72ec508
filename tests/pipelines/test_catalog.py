import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.catalog import DAGS
from pipelines.cli import main

REPOSITORY = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every DAG, compiled in a process whose environment is empty."""
    out = tmp_path_factory.mktemp("compiled")
    command = [sys.executable, "-m", "pipelines.cli", "compile", "--out", str(out)]
    subprocess.run(command, cwd=REPOSITORY, env={}, check=True, capture_output=True)
    return out


def test_every_dag_has_a_golden_file_and_no_other(compiled: Path) -> None:
    names = sorted(f"{name}.yaml" for name in DAGS)
    assert sorted(path.name for path in compiled.iterdir()) == names
    assert sorted(path.name for path in GOLDEN.iterdir()) == names


@pytest.mark.parametrize("name", DAGS)
def test_a_dag_compiles_to_its_golden_file(compiled: Path, name: str) -> None:
    """After a wanted change: ``thawline compile --out tests/pipelines/golden``, and read the difference."""
    assert (compiled / f"{name}.yaml").read_text() == (GOLDEN / f"{name}.yaml").read_text()


def test_steps_install_nothing_when_they_run(compiled: Path) -> None:
    for path in compiled.iterdir():
        assert "pip install" not in path.read_text()


def test_a_recipe_shapes_what_is_compiled(tmp_path: Path) -> None:
    assert main(["compile", "--out", str(tmp_path), "--recipe", "synthetic", "--set", "cluster.claim=mine"]) == 0
    text = (tmp_path / "retrain.yaml").read_text()
    assert "constant: mine" in text
    assert "thawline-store" not in text


def test_pods_are_in_the_golden_files() -> None:
    for name in DAGS:
        spec, platforms = yaml.load_all((GOLDEN / f"{name}.yaml").read_text(), yaml.CSafeLoader)
        pods = platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        assert pods.keys() == spec["deploymentSpec"]["executors"].keys()
