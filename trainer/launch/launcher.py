"""Who runs a job: the seam between what is trained and where, and the launcher of one host."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from trainer.launch.job import Job, torchrun


class Launcher(Protocol):
    """Runs jobs."""

    def run(self, job: Job) -> None:
        """Runs a job to its end; what its ranks say goes to stderr, and nothing of it runs on afterwards.

        Raises:
            RuntimeError: A rank failed; its traceback is on stderr.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Torchrun:
    """Runs a job's ranks on this host, as processes of ``torchrun``."""

    def run(self, job: Job) -> None:
        """See `Launcher`; whatever ends this call early ends the ranks too."""
        assert job.recipe.cluster.num_nodes == 1, "several hosts want another launcher"
        with TemporaryDirectory() as folder:
            path = Path(folder) / "job.json"
            job.write(path)
            # Gloo's ranks compute with one thread each (`trainer.runs.process_group`); saying so here keeps torchrun
            # quiet.
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(torchrun(job, path, "--standalone"), env=environment, stdout=sys.stderr)
            try:
                status = process.wait()
            except BaseException:
                process.terminate()  # torchrun passes it on to its ranks
                process.wait()
                raise
        if status:
            raise RuntimeError(f"{job.task}: torchrun failed with exit code {status}; see the traceback above")
