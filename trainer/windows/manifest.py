"""A window: the prepared days that one retrain trains on and the held-out day after them, named by one JSON file.

A manifest holds paths relative to itself, so that a store may be moved or mounted elsewhere, and its name is the digest
of what it names: the same days in the same versions are the same window.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from trainer.errors import InputError
from trainer.windows.storage import local_path, write_json

PARTITION_JSON = "partition.json"


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One prepared day.

    Attributes:
        path: Its folder, which holds ``part-*.parquet`` and ``partition.json``; the folder's name is its address.
        day: The UTC day.
        num_rows: Impressions.
        num_slates: Slates.
    """

    path: str
    day: date
    num_rows: int
    num_slates: int

    @property
    def address(self) -> str:
        """Hash of the inputs and settings that made it, 16 hex digits."""
        return Path(self.path).name


@dataclass(frozen=True, kw_only=True)
class WindowManifest:
    """Consecutive training days, oldest first, and the day held out after them, if there is one."""

    days: tuple[Partition, ...]
    heldout: Partition | None

    @property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of the days' addresses and of which of them is held out."""
        names = [[partition.day.isoformat(), partition.address] for partition in self.days]
        heldout = self.heldout and [self.heldout.day.isoformat(), self.heldout.address]
        return hashlib.sha256(json.dumps([names, heldout]).encode()).hexdigest()[:16]

    @property
    def first_day(self) -> date:
        """The oldest training day."""
        return self.days[0].day

    @property
    def last_day(self) -> date:
        """The newest training day; the held-out day comes after it."""
        return self.days[-1].day

    @property
    def num_rows(self) -> int:
        """Impressions of the training days."""
        return sum(partition.num_rows for partition in self.days)


def window_days(date_: date, num_days: int) -> list[date]:
    """The days of the retrain that runs on `date_`: `num_days` training days, then the held-out day.

    The held-out day is the day before `date_`, the newest that is complete.
    """
    return [date_ - timedelta(days=back) for back in range(num_days + 1, 0, -1)]


def backbone_days(date_: date, num_days: int, backbone_num_days: int) -> list[date]:
    """The days that the backbone of that retrain is pretrained on; they end the day before its window's first day."""
    first_window_day = window_days(date_, num_days)[0]
    return [first_window_day - timedelta(days=back) for back in range(backbone_num_days, 0, -1)]


def load_partition(path: str) -> Partition:
    """Reads what `trainer.windows.preparation.prepare_day` published at `path`.

    Raises:
        InputError: There is no whole partition.
    """
    content = _read_json(local_path(path) / PARTITION_JSON, "remove that folder and prepare its day again")
    return _partition(path, content)


def assemble_window(partitions: Sequence[str], store: str, *, has_heldout: bool) -> str:
    """Publishes the manifest of a window as ``<store>/windows/<digest>.json``.

    Args:
        partitions: Folders of prepared days, in any order.
        store: Folder that everything we write is kept in.
        has_heldout: The newest day is held out rather than trained on.

    Returns:
        Path of the manifest.

    Raises:
        InputError: A partition is not there, a day is there twice or is missing between others, or no training day is
            left.
    """
    loaded = sorted((load_partition(path) for path in partitions), key=lambda partition: partition.day)
    _refuse_gaps(loaded)
    num_training = len(loaded) - 1 if has_heldout else len(loaded)
    if num_training < 1:
        raise InputError(f"a window of {len(loaded)} prepared days leaves none to train on; prepare more days")
    window = WindowManifest(days=tuple(loaded[:num_training]), heldout=loaded[-1] if has_heldout else None)
    target = local_path(store) / "windows" / f"{window.digest}.json"
    write_json(target, _to_json(window, target.parent))
    return str(target)


def load_window(path: str) -> WindowManifest:
    """Reads what `assemble_window` published.

    Raises:
        InputError: There is no such manifest, it is not whole, or a partition that it names is gone.
    """
    target = local_path(path)
    content = _read_json(target, "assemble the window again")
    try:
        named = [content["heldout"], *content["days"]]
        found = [part and _partition(str((target.parent / part["path"]).resolve()), part) for part in named]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: not a window manifest; assemble the window again") from None
    for partition in filter(None, found):
        if not (Path(partition.path) / PARTITION_JSON).is_file():
            raise InputError(f"{path}: its day {partition.day} is gone from {partition.path}; prepare that day again")
    return WindowManifest(days=tuple(found[1:]), heldout=found[0])


def _refuse_gaps(partitions: Sequence[Partition]) -> None:
    for earlier, later in pairwise(partitions):
        if later.day == earlier.day:
            raise InputError(f"window: {later.day} is there twice ({earlier.path}, {later.path}); name each day once")
        if later.day != earlier.day + timedelta(days=1):
            missing = earlier.day + timedelta(days=1)
            raise InputError(
                f"window: {missing} is missing between {earlier.day} and {later.day}; prepare that day too"
            )


def _to_json(window: WindowManifest, folder: Path) -> dict[str, Any]:
    def entry(partition: Partition) -> dict[str, Any]:
        return {
            "path": os.path.relpath(Path(partition.path).resolve(), folder.resolve()),
            "day": partition.day.isoformat(),
            "num_rows": partition.num_rows,
            "num_slates": partition.num_slates,
        }

    return {
        "digest": window.digest,
        "num_rows": window.num_rows,
        "days": [entry(partition) for partition in window.days],
        "heldout": window.heldout and entry(window.heldout),
    }


def _partition(path: str, content: dict[str, Any]) -> Partition:
    return Partition(
        path=path,
        day=date.fromisoformat(content["day"]),
        num_rows=content["num_rows"],
        num_slates=content["num_slates"],
    )


def _read_json(path: Path, remedy: str) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not JSON"
        raise InputError(f"{path}: cannot be read ({reason}); {remedy}") from None
