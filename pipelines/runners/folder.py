"""The folder of one run on this machine: emptied of an earlier attempt, and owned by whom its steps run as."""

import os
import shutil
from pathlib import Path

from components.records import UNFINISHED
from components.report_run.reporting import END_FILE
from trainer.errors import InputError

TERMINATION_LOG = "termination.log"
"""In a run's folder: takes a user's mistake in one line, as a pod's termination log does."""

KFP = "kfp"
"""In a run's folder: what kfp keeps between steps."""


def start_afresh(folder: Path, owner: tuple[int, int] | None = None) -> None:
    """Drops what an earlier attempt at this run left; the prepared days lie elsewhere and stay.

    Args:
        folder: The run's folder; made when missing.
        owner: User and group that own what is made here; those of this process when None.

    Raises:
        InputError: It cannot be written.
    """
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for name in (KFP, "steps", UNFINISHED, "report"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in ("summary.json", "backbone.json", END_FILE, TERMINATION_LOG):
            (folder / name).unlink(missing_ok=True)
        (folder / KFP).mkdir(exist_ok=True)
        (folder / TERMINATION_LOG).touch()
        if owner is not None:
            for path in (*missing, folder / KFP, folder / TERMINATION_LOG):
                os.chown(path, *owner)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); choose another --store") from None
