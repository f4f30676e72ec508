"""Keeps a job on other hosts from outliving the step that follows it.

A step that is told to stop deletes its job; one that is killed outright, with its host or by a launcher that passes no
signal on, cannot. So it renews a lease, a file in the job's folder, and rank 0 leaves when that no longer changes.
Contents are compared, not times: hosts' clocks differ, and shared file systems remember old times for a while.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

_FILE = "followed"
_LOOK_EVERY_S = 15.0
LOST_AFTER_S = 600.0
"""Well above what a step waits for a cluster that does not answer."""


def renew(folder: Path) -> None:
    """Says that someone follows the job of this folder; without a first call none is asked for."""
    (folder / _FILE).write_text(str(time.time_ns()))


def watch(
    folder: Path,
    *,
    on_lost: Callable[[], object],
    lost_after_s: float = LOST_AFTER_S,
    look_every_s: float = _LOOK_EVERY_S,
) -> None:
    """Calls `on_lost` from a thread once the lease has not changed for a while; returns at once.

    Args:
        folder: Of the job; where no lease lies, as when its ranks run on the step's own host, nothing is watched.
        on_lost: Ends the job.
        lost_after_s: Seconds without a change.
        look_every_s: Seconds between looks.
    """
    if not (folder / _FILE).is_file():
        return

    def keep_looking() -> None:
        seen, seen_at_s = _read(folder), time.monotonic()
        while time.monotonic() - seen_at_s < lost_after_s:
            time.sleep(look_every_s)
            found = _read(folder)
            if found != seen:
                seen, seen_at_s = found, time.monotonic()
        on_lost()

    threading.Thread(target=keep_looking, name="lease", daemon=True).start()


def _read(folder: Path) -> str:
    """What the lease says; nothing where it cannot be read, which changes nothing while that lasts."""
    try:
        return (folder / _FILE).read_text()
    except OSError:
        return ""
