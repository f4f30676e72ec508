"""Guards of the house: import directions, sizes, locks."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[1]
MAX_LINES = 400
TORCH_FREE = ("trainer/errors.py", "trainer/recipe", "trainer/windows", "trainer/evaluation")
TORCH = ("torch", "torchrec", "fbgemm_gpu")
# What checks a GPU, where torch may be all that is installed.
PLAIN_TORCH = ("benchmarks/gpu.py", "trainer/semisync", "trainer/embeddings/small.py", "tests/gpu")
BESIDE_TORCH = ("torchrec", "fbgemm_gpu", "mlflow", "pyarrow", "tqdm", "kfp", "components", "pipelines")

BLOCKED_IMPORTS = """
import importlib, importlib.abc, sys
blocked, modules = sys.argv[1].split(","), sys.argv[2].split(",")
class Wall(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError("walled off: " + name)
sys.meta_path.insert(0, Wall())
for module in modules:
    importlib.import_module(module)
"""


def python_files(*places: str) -> list[Path]:
    paths = [REPOSITORY / place for place in places]
    return sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py")))


def imported_packages(path: Path) -> Iterator[str]:
    """The top-level packages that a file imports anywhere, within functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module.split(".")[0]


@pytest.mark.parametrize(
    ("places", "forbidden"),
    [
        (("trainer",), ("kfp", "components", "pipelines", "benchmarks")),
        (("components",), ("pipelines", "benchmarks")),
        (("pipelines",), ("benchmarks",)),
        (TORCH_FREE, TORCH),
    ],
    ids=["trainer", "components", "pipelines", "torch-free"],
)
def test_imports_point_one_way(places: tuple[str, ...], forbidden: tuple[str, ...]) -> None:
    files = python_files(*places)
    assert files
    wrong = {str(file.relative_to(REPOSITORY)) for file in files if set(forbidden) & set(imported_packages(file))}
    assert not wrong, f"import one of {forbidden}"


@pytest.mark.parametrize(
    ("places", "blocked"),
    [(("trainer",), ("kfp", "components", "pipelines")), (TORCH_FREE, TORCH), (PLAIN_TORCH, BESIDE_TORCH)],
    ids=["trainer", "torch-free", "plain-torch"],
)
def test_imports_work_behind_a_wall(places: tuple[str, ...], blocked: tuple[str, ...]) -> None:
    modules = [
        ".".join(file.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
        for file in python_files(*places)
        # MLflow runs it as a script, with the model's context set.
        if file.name != "served.py"
    ]
    command = [sys.executable, "-c", BLOCKED_IMPORTS, ",".join(blocked), ",".join(modules)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_modules_are_short() -> None:
    files = python_files("trainer", "components", "pipelines", "benchmarks", "tests")
    long = {str(file.relative_to(REPOSITORY)) for file in files if len(file.read_text().splitlines()) > MAX_LINES}
    assert not long, f"over {MAX_LINES} lines"


def test_every_component_has_a_readme() -> None:
    folders = [path.parent for path in (REPOSITORY / "components").glob("*/component.py")]
    assert folders
    assert not [folder.name for folder in folders if not (folder / "README.md").is_file()]


LOCKS = sorted((REPOSITORY / "requirements").glob("*.txt"))


def pins(lock: Path) -> dict[str, str]:
    """Public versions by package: 2.13.0+cpu and 2.13.0 are two builds of one."""
    return dict(re.findall(r"^([a-z0-9.-]+)===?([^\s+]+)", lock.read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_is_complete(lock: Path) -> None:
    """Locks are installed with ``--no-deps``, so each must name all that its packages ask for here."""
    pinned = pins(lock)
    assert pinned
    # What only GPUs need is not installed where tests run; its needs cannot be looked up.
    for name in pinned.keys() & pins(REPOSITORY / "requirements" / "dev.txt").keys():
        for text in metadata.requires(name) or []:
            asked = Requirement(text)
            if (asked.marker is None or asked.marker.evaluate({"extra": ""})) and asked.name != "fbgemm-gpu":
                found = canonicalize_name(asked.name)
                assert found in pinned, f"{name} asks for {text}"
                assert asked.specifier.contains(pinned[found], prereleases=True), f"{name} asks for {text}"


def test_locks_agree_on_versions() -> None:
    versions: dict[str, set[str]] = {}
    for lock in LOCKS:
        for name, version in pins(lock).items():
            versions.setdefault(name, set()).add(version)
    assert not {name: found for name, found in versions.items() if len(found) > 1}


def test_the_data_lock_has_no_torch() -> None:
    assert not {"torch", "torchrec", "mlflow"} & set(pins(REPOSITORY / "requirements" / "data.txt"))
