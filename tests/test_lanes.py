"""Every test runs on a lane: `make test` without a GPU, `make test-gpu` with one; none skips itself for want of one."""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
    assert status == 0, said.getvalue()
print(json.dumps(found))
"""


def lanes() -> dict[str, list[str]]:
    """What each target of the Makefile hands to pytest, without what shares the work out."""
    recipes = re.findall(r"^(test[a-z-]*):.*\n\t.*-m pytest (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    return {target: shlex.split(re.sub(r"-n \d+ --dist \w+", "", arguments)) for target, arguments in recipes}


def collected(*selections: list[str]) -> list[set[str]]:
    """The tests that pytest would run, by selection."""
    command = [sys.executable, "-c", COLLECT, json.dumps(selections)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(found) for found in json.loads(done.stdout)]


def test_every_test_marked_gpu_has_a_lane() -> None:
    found = lanes()
    assert found.keys() == {"test", "test-gpu"}
    assert found["test"] == ["-m", "not gpu", "tests"]
    folder = str(GPU_FOLDER.relative_to(REPOSITORY))
    every, marked, with_gpu, without = collected(
        [folder], ["-m", "gpu", folder], found["test-gpu"], [*found["test"][:-1], folder]
    )
    assert marked
    assert with_gpu == marked
    assert without == every - marked


def names(tree: ast.AST) -> Iterator[str]:
    """The dotted names that code uses, e.g. ``torch.cuda.is_available``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def test_what_needs_a_gpu_lies_where_its_lane_looks() -> None:
    """`make test-gpu` collects one folder, so that plain torch suffices; its own conftest alone asks for a GPU."""
    for file in (REPOSITORY / "tests").rglob("*.py"):
        used = set(names(ast.parse(file.read_text())))
        asks = {name for name in used if name.endswith(("cuda.is_available", "cuda.device_count"))}
        assert not asks or file == GPU_FOLDER / "conftest.py", f"{file} asks for a GPU itself: mark its tests gpu"
        marks = {name for name in used if name.endswith("mark.gpu")}
        assert not marks or GPU_FOLDER in file.parents, f"{file} marks tests gpu outside of {GPU_FOLDER.name}/"
