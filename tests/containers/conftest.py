"""What needs a Docker engine and our images: `make test-containers` starts the one and builds the others."""

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

import docker
import pytest

from tests.containers.servers import MlflowServer, mlflow, postgresql


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="session")
def mlflow_server(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("mlflow")
    with postgresql(engine, folder) as database, mlflow(database, folder) as server:
        yield server


@dataclass(frozen=True, kw_only=True)
class Held:
    """How a container of ours is held."""

    engine: docker.DockerClient

    def run(self, image: str, *command: str, **arguments: Any) -> tuple[int, str]:
        """Exit code and output of a command in a container like a pod's, without any network."""
        container = self.engine.containers.run(
            image,
            list(command),
            detach=True,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            **{"network_mode": "none", "tmpfs": {"/tmp": ""}, **arguments},
        )
        try:
            code = int(container.wait(timeout=120)["StatusCode"])
            return code, container.logs().decode()
        finally:
            container.remove(force=True, v=True)

    def tree(self, image: str) -> dict[str, tuple[object, ...]]:
        """Every file of an image: kind, mode, owner, link, time and digest by path.

        Folders have no time, for the engine gives those that a layer touches its own.
        """
        container = self.engine.containers.create(image)
        try:
            with tarfile.open(fileobj=cast(IO[bytes], _Stream(container.export())), mode="r|") as archive:
                return {member.name: _facts(archive, member) for member in archive if not _is_the_engines(member.name)}
        finally:
            container.remove(v=True)


@pytest.fixture(scope="session")
def held(engine: docker.DockerClient) -> Held:
    return Held(engine=engine)


def _is_the_engines(name: str) -> bool:
    return name.split("/")[0] in ("dev", "proc", "sys") or name in (
        ".dockerenv",
        "etc/hosts",
        "etc/hostname",
        "etc/mtab",
        "etc/resolv.conf",
    )


def _facts(archive: tarfile.TarFile, member: tarfile.TarInfo) -> tuple[object, ...]:
    stream = archive.extractfile(member) if member.isreg() else None
    digest = hashlib.file_digest(stream, "sha256").hexdigest() if stream else None  # type: ignore[arg-type]
    time = None if member.isdir() else member.mtime
    return (member.type, member.mode, member.uid, member.gid, member.linkname, time, digest)


class _Stream:
    """Chunks as a file that is read once, from front to back."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, length = [self._rest], len(self._rest)
        while length < size and (chunk := next(self._chunks, b"")):
            parts.append(chunk)
            length += len(chunk)
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]
