"""A container's exit code arrives, however soon it ends: kfp's own function lost it when the container went first."""

from typing import Any

import docker
import pytest

from components.images import DATA_IMAGE
from pipelines.runners.docker import Containers

# One worker, for both look at every container of ours on the engine.
pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers of ours")]


def run(engine: docker.DockerClient, *command: str, **arguments: Any) -> int:
    with Containers(engine, "a test").taking_over():
        from kfp.local import docker_task_handler

        return int(
            docker_task_handler.run_docker_container(
                client=engine, image=DATA_IMAGE, command=list(command), volumes={}, network_mode="none", **arguments
            )
        )


def test_a_failure_is_never_taken_for_a_success(engine: docker.DockerClient) -> None:
    assert [run(engine, "sh", "-c", "exit 3") for _ in range(5)] == [3] * 5


def test_lines_are_printed_whole(engine: docker.DockerClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(engine, "printf", "one\ntw\\303\\266\nthree") == 0
    assert capsys.readouterr().out == "one\ntwö\nthree\n"


def test_what_the_engine_refuses_is_a_failure(engine: docker.DockerClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(engine, "no-such-command") == 125
    assert "no-such-command" in capsys.readouterr().out
