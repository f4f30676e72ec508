"""Every test runs on a lane: `make test`, or `make test-MARKER` for what few machines have.

None skips itself for want of a GPU or an engine; two hosts in network namespaces want root, and say so.
"""

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
GPU_FOLDER = REPOSITORY / "tests" / "gpu"

COLLECT = """
import contextlib, io, json, sys
import pytest
class Collected:
    def pytest_collection_finish(self, session):
        found.append(sorted(item.nodeid for item in session.items))
found = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = pytest.main([*arguments, "--collect-only", "-p", "no:cacheprovider"], plugins=[Collected()])
    assert status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), said.getvalue()
print(json.dumps(found))
"""


def lanes() -> dict[str, list[str]]:
    """What each target of the Makefile hands to pytest, without what shares the work out."""
    recipes = re.findall(r"^(test[a-z-]*):.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    handed = {target: re.findall(r"-m pytest (.*)$", recipe, re.MULTILINE) for target, recipe in recipes}
    return {target: shlex.split(re.sub(r"-n \d+ --dist \w+", "", arguments)) for target, (arguments,) in handed.items()}


def markers() -> list[str]:
    """Our marks: each says what a test needs that `make test` does not have."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    return [line.partition(":")[0] for line in settings["markers"]]


def collected(*selections: list[str]) -> list[set[str]]:
    """The tests that pytest would run, by selection."""
    command = [sys.executable, "-c", COLLECT, json.dumps(selections)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(found) for found in json.loads(done.stdout)]


GROUPED = """
import os
import pytest

@pytest.fixture(scope="module")
def story(tmp_path_factory):
    (tmp_path_factory.getbasetemp().parent / f"told-{os.getpid()}").touch()

@pytest.mark.xdist_group("story")
@pytest.mark.parametrize("chapter", range(8))
def test_story(story, chapter):
    pass
"""


def test_a_group_is_told_to_one_worker_once(tmp_path: Path) -> None:
    """Each of our stories takes minutes to tell; grouping was lost once without a word."""
    (tmp_path / "test_story.py").write_text(GROUPED)
    options = ["-n", "2", "--dist", "loadgroup", "--basetemp", str(tmp_path / "base"), "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "test_story.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "8 passed" in done.stdout, done.stdout + done.stderr
    assert len(list((tmp_path / "base").glob("told-*"))) == 1


def test_what_is_marked_is_left_out_of_make_test() -> None:
    found = lanes()
    assert found.keys() >= {"test", *(f"test-{marker}" for marker in markers())}
    assert found["test"] == ["-m", " and ".join(f"not {marker}" for marker in markers()), "tests"]


@pytest.mark.parametrize("marker", markers())
def test_every_marked_test_has_a_lane(marker: str) -> None:
    """A mark's tests lie in the folder of its name."""
    found, folder = lanes(), f"tests/{marker}"
    every, marked, on_lane, without = collected(
        [folder], ["-m", marker, folder], found[f"test-{marker}"], [*found["test"][:-1], folder]
    )
    assert marked
    assert on_lane == marked
    assert without == every - marked


def names(tree: ast.AST) -> Iterator[str]:
    """The dotted names that code uses, e.g. ``torch.cuda.is_available``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def test_what_is_marked_lies_where_its_lane_looks() -> None:
    """A lane collects one folder, so plain torch suffices for `make test-gpu`; its conftest alone asks for a GPU."""
    for file in (REPOSITORY / "tests").rglob("*.py"):
        used = set(names(ast.parse(file.read_text())))
        asks = {name for name in used if name.endswith(("cuda.is_available", "cuda.device_count"))}
        assert not asks or file == GPU_FOLDER / "conftest.py", f"{file} asks for a GPU itself: mark its tests gpu"
        for marker in markers():
            marks = {name for name in used if name.endswith(f"mark.{marker}")}
            folder = REPOSITORY / "tests" / marker
            assert not marks or folder in file.parents, f"{file} marks tests {marker} outside of tests/{marker}/"
