"""What child processes do to prepare a day: forked from one that has imported everything, and killed at will."""

import os
import resource
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

from tests.faults.conftest import DAYS, recipe_of
from trainer.windows import preparation
from trainer.windows.preparation import prepare_day

preparation.BUCKET_BYTES = 20_000  # days of some hundred rows go through files on disk, as large ones do

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.faults.work"])

NOBODY = 65_534


def prepare(log: str, store: str, pipe: Connection) -> None:
    """Says that it begins, prepares the first day, and says what came of it."""
    pipe.send("begins")
    try:
        pipe.send(prepare_day(recipe_of(log), DAYS[0], store))
    except Exception as error:
        pipe.send(error)


def prepare_together(log: str, store: str, barrier: Barrier, pipe: Connection) -> None:
    """As `prepare`, once all are ready."""
    barrier.wait()
    prepare(log, store, pipe)


def prepare_with_files_of(num_bytes: int, log: str, store: str, pipe: Connection) -> None:
    """As `prepare`, where a file may have so many bytes and no more: the next write fails, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))
    prepare(log, store, pipe)


def prepare_as_nobody(log: str, store: str, pipe: Connection) -> None:
    """As `prepare`, as a user whom modes hold, which they do not hold root."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    prepare(log, store, pipe)


def outcome(work: Callable[..., None], *arguments: Any) -> Any:
    """Runs one of the above to its end: what it returned or raised."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=work, args=(*arguments, theirs))
    process.start()
    theirs.close()
    assert ours.recv() == "begins"
    result = ours.recv()
    process.join()
    assert process.exitcode == 0
    return result
