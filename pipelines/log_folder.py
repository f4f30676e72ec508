"""A new log's folder, which appears whole or not at all."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import InputError
from trainer.storage.errors import explained


def make_log(out: Path, write: Callable[[Path], None]) -> None:
    """Has a log written aside and moves it into place when it is whole.

    Args:
        out: The log's folder.
        write: Is given the folder to fill; it is there and empty.

    Raises:
        InputError: `out` is there already, is being made by another process, or cannot be written to. Nothing stays.
    """
    if out.parts[0] == "gs:":
        raise InputError(f"--out {out}: a log is made in a local folder; name one, and copy it to the bucket when made")
    _refuse_existing(out)
    aside = out.with_name(f".{out.name}.aside")
    with explained(out, "written"), _owned(aside):
        try:
            write(aside)
            _publish(aside, out)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _publish(aside: Path, out: Path) -> None:
    _refuse_existing(out)
    try:
        aside.rename(out)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            _refuse_existing(out)
        raise


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise InputError(f"{out}: is there already; remove it or name another --out")


@contextmanager
def _owned(aside: Path) -> Iterator[None]:
    """Makes the folder, without what a killed process left in it; keeps off one that a living process fills."""
    aside.mkdir(parents=True, exist_ok=True)
    folder = os.open(aside, os.O_RDONLY)
    try:
        _lock(folder, aside)
        for left in aside.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield
    finally:
        os.close(folder)


def _lock(folder: int, aside: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it before may have moved it into place meanwhile.
        is_free = aside.is_dir() and os.stat(aside).st_ino == os.fstat(folder).st_ino
    except BlockingIOError:
        is_free = False
    if not is_free:
        raise InputError(f"{aside}: another process fills it; wait for it or name another --out")
