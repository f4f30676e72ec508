"""The images' recipes, as far as they can be read without an engine; `tests/containers` builds and runs them."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from components.images import DATA_IMAGE, TRAINER_GPU_IMAGE, TRAINER_IMAGE

REPOSITORY = Path(__file__).parents[1]
IMAGES = REPOSITORY / "images"
LOCKS = {"data": "data", "trainer-cpu": "cpu", "trainer-gpu": "gpu"}


def dockerfile(name: str) -> str:
    return (IMAGES / name / "Dockerfile").read_text()


def script(name: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [IMAGES / name, *arguments], env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_every_image_has_a_name() -> None:
    named = {image.partition("/")[2].partition(":")[0] for image in (DATA_IMAGE, TRAINER_IMAGE, TRAINER_GPU_IMAGE)}
    assert named == LOCKS.keys() == {path.parent.name for path in IMAGES.glob("*/Dockerfile")}


@pytest.mark.parametrize("name", LOCKS)
def test_an_image_stands_on_a_pinned_base_and_one_lock(name: str) -> None:
    text = dockerfile(name)
    (base,) = re.findall(r"^ARG BASE_IMAGE=(.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE_IMAGE}", "packages", "${BASE_IMAGE}"]
    assert set(re.findall(r"requirements/(\w+)\.txt", text)) == {LOCKS[name]}


@pytest.mark.parametrize("name", LOCKS)
def test_the_last_stage_only_copies(name: str) -> None:
    last = dockerfile(name).rpartition("\nFROM ")[2]
    instructions = set(re.findall(r"^([A-Z]+) ", last, re.MULTILINE))
    assert instructions == {"COPY", "ENV", "VOLUME", "USER", "HEALTHCHECK", "ARG", "LABEL", "CMD"}
    assert "COPY --from=packages" in last
    assert "COPY --from=code" in last
    assert "USER 10001:10001" in last


def test_the_gpu_image_is_the_cpu_image_from_another_lock() -> None:
    """It is too large to build where tests run: what differs is named here, and the rest is built and tested."""
    gpu = dockerfile("trainer-gpu")
    for ours, theirs in [
        ("gpu.txt", "cpu.txt"),
        ("trainer-gpu", "trainer-cpu"),
        ("on NVIDIA GPUs", "on CPUs"),
        (" \\\n    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility", ""),
        # The CPU build of torch comes from a folder of wheels.
        (
            "\n    sh /build/install.sh p",
            "\n    --mount=type=bind,source=images/wheels,target=/wheels sh /build/install.sh p",
        ),
    ]:
        assert ours in gpu
        gpu = gpu.replace(ours, theirs)
    assert gpu == dockerfile("trainer-cpu")


def test_what_builds_packages_is_what_the_locks_name() -> None:
    named = re.findall(r"^(\w+==\S+)$", (IMAGES / "constraints.txt").read_text(), re.MULTILINE)
    assert named
    assert set(named) <= set((REPOSITORY / "requirements" / "dev.txt").read_text().split())


@pytest.mark.parametrize("name", ["build.sh", "base.sh", "engine.sh"])
def test_no_engine_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/nothing.sock", "DOCKER": "false"}
    argument = {"build.sh": "data", "base.sh": "some/base:tag", "engine.sh": "check"}[name]
    done = script(name, argument, **nowhere)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: ")
    assert done.stdout == ""


def test_an_image_that_there_is_not_is_told() -> None:
    done = script("build.sh", "nope")
    assert done.returncode == 1
    assert done.stderr == "build.sh: there is no image 'nope'; say data, trainer-cpu or trainer-gpu\n"
