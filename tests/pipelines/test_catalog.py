import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.catalog import DAGS

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


@pytest.mark.parametrize(
    ("name", "never_cached"),
    [
        ("retrain", ("find-backbone", "find-finished", "evaluate", "register")),
        ("compare", ("find-backbone", "open-comparison", "train-arm", "report-comparison")),
    ],
)
def test_what_is_looked_up_is_never_cached(compiled: Path, name: str, never_cached: tuple[str, ...]) -> None:
    spec = next(yaml.safe_load_all((compiled / f"{name}.yaml").read_text()))
    tasks = dict(spec["root"]["dag"]["tasks"])
    for component in spec["components"].values():
        tasks |= component.get("dag", {}).get("tasks", {})
    for task in never_cached:
        assert not tasks[task]["cachingOptions"].get("enableCache"), task
    assert tasks["prepare-day"]["cachingOptions"]["enableCache"]
