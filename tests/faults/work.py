"""What child processes do to prepare a day: forked from one that has imported everything, and killed at will."""

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import torch

from tests.faults.conftest import DAYS, recipe_of
from tests.trainer.windows.partitions import read_rows
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.batches.window import open_window
from trainer.recipe import Recipe
from trainer.storage.gcs import RETRY_VARIABLE
from trainer.windows import preparation
from trainer.windows.manifest import WindowManifest, assemble_window, load_window
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


def prepare_and_read(server: str, retry_s: float, log: str, store: str, wanted: str, pipe: Connection) -> None:
    """Prepares all days and reads their window, through a server; sends what differs from a local window."""
    os.environ |= {"STORAGE_EMULATOR_HOST": server, RETRY_VARIABLE: str(retry_s)}
    pipe.send("begins")
    try:
        recipe = recipe_of(log)
        partitions = [prepare_day(recipe, day, store) for day in DAYS]
        window = load_window(assemble_window(partitions, store, has_heldout=False))
        pipe.send(list(differences(window, load_window(wanted), recipe)))
    except Exception as error:
        pipe.send(error)


def differences(found: WindowManifest, wanted: WindowManifest, recipe: Recipe) -> Iterator[str]:
    """In rows, or in the batches of a pass."""
    for mine, theirs in zip(found.days, wanted.days, strict=True):
        if not read_rows(mine).equals(read_rows(theirs)):
            yield f"{mine.paths}: other rows"
    batches = [list(batches_of(window, recipe)) for window in (found, wanted)]
    for step, (mine, theirs) in enumerate(zip(*batches, strict=True)):
        if not same(mine, theirs):
            yield f"step {step}: another batch"


def batches_of(window: WindowManifest, recipe: Recipe) -> Iterator[Batch]:
    return SlateReader(open_window(window.days, recipe), batch_rows=64, seed=3).epoch(0)


def same(one: Batch, other: Batch) -> bool:
    def equal(mine: object, theirs: object) -> bool:
        if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
            return torch.equal(mine, theirs)
        return mine == theirs

    return all(equal(value, vars(other)[name]) for name, value in vars(one).items())


def outcome(work: Callable[..., None], *arguments: Any) -> Any:
    """Runs one of the above to its end: what it returned or raised."""
    return outcomes(work, [arguments])[0]


def outcomes(work: Callable[..., None], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The same of many at once."""
    pipes = [CONTEXT.Pipe() for _ in calls]
    processes = [
        CONTEXT.Process(target=work, args=(*arguments, theirs))
        for arguments, (_, theirs) in zip(calls, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    for _, theirs in pipes:
        theirs.close()
    said = [(ours.recv(), ours.recv()) for ours, _ in pipes]
    for process in processes:
        process.join()
    assert all(process.exitcode == 0 for process in processes)
    assert {begins for begins, _ in said} == {"begins"}
    return [result for _, result in said]
