"""Waiting for other processes, and seeing whether they are gone."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil


def processes_that_name(path: Path) -> Iterator[str]:
    """Command lines of the processes of this machine that have a path, or the beginning of one, in them."""
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(path) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            yield line


def wait_for(condition: Callable[[], object], *, what: str) -> None:
    """Waits until a condition holds, for two minutes at most."""
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"never: {what}")
