"""A DAG's steps in containers of this machine's Docker engine, held as tightly as a cluster holds its pods.

The root file system is read-only, the user is not root, no capability is left. What a run touches outside of its image
is mounted at the path that it has here, so that manifests and summaries name the same files inside and outside; the
network is this machine's, so that a URI means the same too.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import Mount
from google.protobuf.json_format import MessageToDict
from kfp import local
from kfp.local import docker_task_handler

from components.images import IMAGE_USER
from components.run import Run
from pipelines.runners.folder import TERMINATION_LOG, start_afresh
from trainer.errors import InputError
from trainer.storage.uris import local_path

_RUN_LABEL = "thawline.run"
_POD_TERMINATION_LOG = "/dev/termination-log"
_ENGINE_FAILED = 125
_INTERRUPTED = 130


@contextmanager
def containers(dag: Any, run: Run, folder: Path) -> Iterator[local.DockerRunner]:
    """A container a step, with the run's folder made ready; nothing of it runs on afterwards.

    Args:
        dag: The pipeline.
        run: Recipe, date and store.
        folder: The run's folder.

    Raises:
        InputError: No engine answers, an image is missing, or the store cannot be written from a container.
    """
    client, user = _connect(), container_user()
    try:
        _require_images(client, images_of(dag))
        require_owned(local_path(run.store), user)
        start_afresh(folder, user)
        with Containers(client, str(folder.resolve())).taking_over():
            yield local.DockerRunner(**run_arguments(run, folder, user))
    finally:
        client.close()


def container_user() -> tuple[int, int]:
    """User and group that steps run as: this process' own, so that files stay its user's; the images' for root."""
    return (os.getuid(), os.getgid()) if os.getuid() else (IMAGE_USER, IMAGE_USER)


def images_of(dag: Any) -> list[str]:
    """The images that a DAG's steps name, sorted."""
    executors = MessageToDict(dag.pipeline_spec.deployment_spec)["executors"].values()
    return sorted({executor["container"]["image"] for executor in executors if "container" in executor})


def run_arguments(run: Run, folder: Path, user: tuple[int, int]) -> dict[str, Any]:
    """What every container of a run is started with, for `docker run` of the docker package.

    Args:
        run: Recipe, date and store.
        folder: The run's folder.
        user: User and group.
    """
    mounts = dict.fromkeys(_places(local_path(run.store)), False)
    mounts |= {path: True for named in _read(run) for path in _places(named) if path not in mounts}
    return {
        "user": "{}:{}".format(*user),
        "read_only": True,
        "tmpfs": _scratch(set(mounts)),
        "shm_size": "1g",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "network_mode": "host",
        "working_dir": str(Path.cwd()),
        # A step ends by itself, and importing all that it may need now and then would slow it.
        "healthcheck": {"test": ["NONE"]},
        "labels": {_RUN_LABEL: str(folder.resolve())},
        "mounts": [
            *(Mount(str(path), str(path.resolve()), type="bind", read_only=ro) for path, ro in sorted(mounts.items())),
            Mount(_POD_TERMINATION_LOG, str((folder / TERMINATION_LOG).resolve()), type="bind"),
        ],
    }


def _read(run: Run) -> list[Path]:
    """What a run reads outside of the store, where it is there: steps tell better what is missing."""
    named = (run.recipe.logs.uri, run.recipe.vlm.path)
    return [Path(name) for name in named if name and "://" not in name and Path(name).exists()]


def _places(path: Path) -> set[Path]:
    """Where code may look for a folder: at its name, and behind its links."""
    return {path.absolute(), path.resolve()}


def _scratch(mounts: set[Path]) -> dict[str, str]:
    """Folders in memory, with their options, for a container that has these mounts."""
    here, closed = Path.cwd(), Path("/root")
    scratch = {"/tmp": "mode=1777"}
    # An image's /root lets nobody else pass to what is mounted in it: put a passable one over it.
    if any(path.is_relative_to(closed) for path in (here, *mounts)):
        scratch |= {str(path): "mode=755" for path in {closed, here} - mounts if path.is_relative_to(closed)}
    return scratch


def _connect() -> docker.DockerClient:
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        where = os.environ.get("DOCKER_HOST", "its usual socket")
        reason = " ".join(str(error).split())
        raise InputError(
            f"--runner docker: no Docker engine answers at {where} ({reason}); start one (images/engine.sh start) or "
            "use --runner local"
        ) from None
    return client


def _require_images(client: docker.DockerClient, names: list[str]) -> None:
    for name in names:
        try:
            client.images.get(name)
        except ImageNotFound:
            raise InputError(f"--runner docker: image {name} is not on this machine; `make images` builds it") from None


def require_owned(store: Path, user: tuple[int, int]) -> None:
    """Root's containers are not root's: they can write only to a store that is theirs."""
    if os.getuid():
        return
    for folder, _, _ in os.walk(store):
        if os.stat(folder).st_uid != user[0]:
            whose = "{}:{}".format(*user)
            raise InputError(
                f"{folder}: is not user {user[0]}'s, whom containers run as when root starts them; "
                f"`chown -R {whose} {store}` or choose another --store"
            )


class Containers:
    """Runs one container a step, in the place of kfp's own function.

    kfp 2.17 has the engine remove a container as soon as it ends, and takes one that is gone before it was asked for
    its exit code for a success. Here a container is removed once its code is known, and when the run is interrupted.
    """

    def __init__(self, client: docker.DockerClient, label: str) -> None:
        self._client = client
        self._label = label
        self._is_interrupted = False

    @contextmanager
    def taking_over(self) -> Iterator[None]:
        """While the block runs, kfp runs containers by this object, and an interrupt ends them."""
        kfps = docker_task_handler.run_docker_container
        before = signal.signal(signal.SIGINT, self._interrupt)
        docker_task_handler.run_docker_container = self.run
        try:
            yield
        finally:
            docker_task_handler.run_docker_container = kfps
            signal.signal(signal.SIGINT, before)
            self._remove_all()

    def run(
        self, client: docker.DockerClient, image: str, command: list[str], volumes: Mapping[str, Any], **arguments: Any
    ) -> int:
        """Prints what a container says, line by line, and returns its exit code."""
        if self._is_interrupted:
            return _INTERRUPTED
        container = None
        try:
            container = client.containers.create(image, command, volumes=volumes, **arguments)
            container.start()
            # Steps run side by side and print into one log: whole lines only.
            num_seen, rest = 0, b""
            for chunk in container.logs(stream=True):
                num_seen += len(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                _print(lines)
            code = int(container.wait()["StatusCode"])
            # An engine that is busy ends the stream of a short container before its last words.
            _print((rest + container.logs()[num_seen:]).splitlines())
            return code
        except APIError as error:
            print(f"docker: {error.explanation or error}")
            return _ENGINE_FAILED
        finally:
            if container is not None:
                with suppress(APIError):
                    container.remove(force=True, v=True)

    def _interrupt(self, signum: int, frame: FrameType | None) -> NoReturn:
        self._is_interrupted = True
        self._remove_all()
        raise KeyboardInterrupt

    def _remove_all(self) -> None:
        found = self._client.containers.list(all=True, filters={"label": f"{_RUN_LABEL}={self._label}"})
        for container in found:
            with suppress(NotFound, APIError):
                container.remove(force=True, v=True)


def _print(lines: Sequence[bytes]) -> None:
    for line in lines:
        print(line.decode(errors="replace"))
