"""A cluster on this machine: the SDK's local-process backend, told what a cluster's nodes and operator would do.

The backend keeps, follows and cancels jobs, and runs a Python function in an environment of its own. What is added is
what it lacks: hosts, as many as the job asks for, each running the job's command with the ``PET_*`` environment that
Kubeflow Trainer's torch plugin gives it; and a cluster's answer to a name that is not there.
"""

import os
import socket
from typing import Any

from kubeflow.trainer import CustomTrainer, CustomTrainerContainer, LocalProcessBackendConfig, TrainerClient
from kubeflow.trainer.options import Name, TrainerCommand
from kubeflow.trainer.types.types import BuiltinTrainer, Initializer, Runtime, TrainJob
from kubernetes.client import ApiException

from trainer.recipe import ClusterConfig


def run_hosts(job: dict):  # type: ignore[no-untyped-def, type-arg]
    """Runs in the job's environment, from its source alone: a process a host, which ends with this one."""
    import ctypes
    import os
    import signal
    import subprocess
    import sys

    def end_with_parent() -> None:
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)

    end_with_parent()
    # The operator guesses processes from CPUs where no other number is given.
    meeting = {"PET_NNODES": str(job["num_hosts"]), "PET_NPROC_PER_NODE": "7"}
    meeting |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": job["port"]}
    hosts = [
        subprocess.Popen(
            job["command"], env={**os.environ, **meeting, "PET_NODE_RANK": str(host)}, preexec_fn=end_with_parent
        )
        for host in range(job["num_hosts"])
    ]
    sys.exit(max(abs(host.wait()) for host in hosts))


class LocalCluster(TrainerClient):
    """Runs `TrainJob`\\ s on this machine."""

    def __init__(self) -> None:
        super().__init__(LocalProcessBackendConfig())
        self.submitted: list[CustomTrainerContainer] = []

    def train(
        self,
        runtime: str | Runtime | None = None,
        initializer: Initializer | None = None,
        trainer: CustomTrainer | CustomTrainerContainer | BuiltinTrainer | None = None,
        options: list[Any] | None = None,
    ) -> str:
        """Runs what the container would."""
        assert runtime == ClusterConfig().runtime
        assert isinstance(trainer, CustomTrainerContainer)
        assert trainer.env is not None and options is not None
        self.submitted.append(trainer)
        (command,) = (option.command for option in options if isinstance(option, TrainerCommand))
        local = self.backend.get_runtime("torch-distributed")
        local.trainer.framework = "python"  # its command is the job's own
        function = CustomTrainer(
            func=run_hosts,
            func_args={"command": command, "num_hosts": trainer.num_nodes, "port": str(_free_port())},
            env={**os.environ, **trainer.env},
        )
        names = [option for option in options if isinstance(option, Name)]
        return super().train(runtime=local, trainer=function, options=names)

    def get_job(self, name: str) -> TrainJob:
        """As a cluster answers."""
        try:
            return super().get_job(name)
        except ValueError as error:
            raise RuntimeError(f"Failed to get TrainJob: {name}") from ApiException(status=404, reason=str(error))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
