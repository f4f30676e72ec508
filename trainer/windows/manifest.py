"""A window: the prepared days that one retrain trains on and the held-out day after them, named by one JSON file.

A manifest holds paths relative to itself, so that a store may be moved or mounted elsewhere, and its name is the digest
of what it names: the same days in the same versions are the same window. A prepared day is there once its
``partition.json`` is, which names its data files; nobody reads a file that is not named.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby, pairwise
from typing import Any

from trainer.errors import InputError
from trainer.storage.filesystem import exists, list_stored
from trainer.storage.publishing import delete, publish_once, read_json
from trainer.storage.uris import is_gcs, join, name_of, parent_of, relative, resolve

PARTITION_JSON = "partition.json"


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One prepared day, or one shard of it.

    Attributes:
        paths: Its folder, which holds its data files and ``partition.json``; of a day in shards, theirs in order. A
            folder's name is its address, the hash of what made it.
        day: The UTC day.
        num_rows: Impressions.
        num_slates: Slates.
        files: URIs of its data files, in the order of their rows.
        shard: Which shard it is of how many; (0, 1) is a whole day.
    """

    paths: tuple[str, ...]
    day: date
    num_rows: int
    num_slates: int
    files: tuple[str, ...]
    shard: tuple[int, int] = (0, 1)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Hashes of the inputs and settings that made it, 16 hex digits a folder."""
        return tuple(name_of(path) for path in self.paths)


@dataclass(frozen=True, kw_only=True)
class WindowManifest:
    """Consecutive training days, oldest first, and the day held out after them, if there is one."""

    days: tuple[Partition, ...]
    heldout: Partition | None

    @property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of the days' addresses and of which of them is held out."""
        names = [[day.day.isoformat(), *day.addresses] for day in self.days]
        heldout = self.heldout and [self.heldout.day.isoformat(), *self.heldout.addresses]
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


def publish_partition(path: str, content: Mapping[str, Any]) -> bool:
    """Publishes a prepared day, or a shard of one, whose data files lie in `path` already: once, and last.

    Args:
        path: Its folder.
        content: What ``partition.json`` will say; ``files`` lists the data files, each with ``name``, ``num_rows`` and
            ``num_bytes``; their names are this writer's own.

    Returns:
        Whether ours is the one there now; when not, another was first, its files are named, and ours are removed.

    Raises:
        InputError: The folder cannot be written to.
        StorageError: Storage failed for too long; ours may be published all the same.
    """
    files = [join(path, entry["name"]) for entry in content["files"]]
    try:
        is_ours = publish_once(join(path, PARTITION_JSON), content)
    except InputError:
        # In gs:// a lost answer may hide that it was published: its files must stay, and `data gc` finds orphans.
        _remove([] if is_gcs(path) else files)
        raise
    if not is_ours:
        _remove(files)
    return is_ours


def _remove(files: Iterable[str]) -> None:
    for file in files:
        delete(file)


def load_partition(path: str) -> Partition:
    """Reads what `trainer.windows.preparation.prepare_day` published at `path`.

    Raises:
        InputError: There is no whole partition.
        StorageError: Storage failed for too long.
    """
    remedy = "remove that folder and prepare its day again"
    source = join(path, PARTITION_JSON)
    content = read_json(source, remedy)
    try:
        partition = _partition(path, content)
        sizes = {entry["name"]: entry["num_bytes"] for entry in content["files"]}
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{source}: does not name its files; {remedy}") from None
    there = {file.name: file.num_bytes for file in list_stored(path)}
    for name, num_bytes in sizes.items():
        if there.get(name) != num_bytes:
            state = "is gone" if name not in there else f"has {there[name]:,} bytes instead of {num_bytes:,}"
            raise InputError(f"{join(path, name)}: {state}; {remedy}")
    return partition


def assemble_window(partitions: Sequence[str], store: str, *, has_heldout: bool) -> str:
    """Publishes the manifest of a window as ``<store>/windows/<digest>.json``, once.

    Args:
        partitions: Folders of prepared days or of their shards, in any order.
        store: Folder that everything we write is kept in.
        has_heldout: The newest day is held out rather than trained on.

    Returns:
        URI of the manifest.

    Raises:
        InputError: A partition is not there, a day is there twice or is missing between others, a shard is missing, or
            no training day is left.
        StorageError: Storage failed for too long.
    """
    days = _whole_days(load_partition(path) for path in partitions)
    _refuse_gaps(days)
    num_training = len(days) - 1 if has_heldout else len(days)
    if num_training < 1:
        raise InputError(f"a window of {len(days)} prepared days leaves none to train on; prepare more days")
    window = WindowManifest(days=tuple(days[:num_training]), heldout=days[-1] if has_heldout else None)
    target = join(store, "windows", f"{window.digest}.json")
    # Another's is the same window, but for which writers' files it names.
    publish_once(target, _to_json(window, parent_of(target)))
    return target


def load_window(path: str) -> WindowManifest:
    """Reads what `assemble_window` published.

    Raises:
        InputError: There is no such manifest, it is not whole, or a partition that it names is gone.
        StorageError: Storage failed for too long.
    """
    window = read_window(path)
    for day in (*window.days, *filter(None, [window.heldout])):
        for shard in day.paths:
            if not exists(join(shard, PARTITION_JSON)):
                raise InputError(f"{path}: its day {day.day} is gone from {shard}; prepare that day again")
    return window


def read_window(path: str) -> WindowManifest:
    """What a manifest says, whether its partitions are there or not; raises as `load_window` does otherwise."""
    content = read_json(path, "assemble the window again")
    folder = parent_of(path)
    try:
        heldout, *days = (entry and _from_json(entry, folder) for entry in [content["heldout"], *content["days"]])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: not a window manifest; assemble the window again") from None
    return WindowManifest(days=tuple(days), heldout=heldout)


def _whole_days(partitions: Iterable[Partition]) -> list[Partition]:
    """Shards put together, by day.

    Raises:
        InputError: A day is there twice, or lacks a shard.
    """
    ordered = sorted(partitions, key=lambda partition: (partition.day, partition.shard))
    return [_whole_day(list(shards)) for _, shards in groupby(ordered, key=lambda partition: partition.day)]


def _whole_day(shards: Sequence[Partition]) -> Partition:
    day = shards[0].day
    for earlier, later in pairwise(shards):
        if later.shard[0] == earlier.shard[0] or later.shard[1] != earlier.shard[1]:
            paths = f"{earlier.paths[0]}, {later.paths[0]}"
            raise InputError(f"window: {day} is there twice ({paths}); name each day once")
    there, num_shards = {partition.shard[0] for partition in shards}, shards[0].shard[1]
    missing = sorted(set(range(num_shards)) - there)
    if missing:
        raise InputError(f"window: {day} lacks shard {missing[0]} of {num_shards}; prepare that shard too")
    return _merged(shards)


def _merged(shards: Sequence[Partition]) -> Partition:
    return Partition(
        paths=tuple(path for shard in shards for path in shard.paths),
        day=shards[0].day,
        num_rows=sum(shard.num_rows for shard in shards),
        num_slates=sum(shard.num_slates for shard in shards),
        files=tuple(file for shard in shards for file in shard.files),
    )


def _refuse_gaps(days: Sequence[Partition]) -> None:
    for earlier, later in pairwise(days):
        if later.day != earlier.day + timedelta(days=1):
            missing = earlier.day + timedelta(days=1)
            raise InputError(
                f"window: {missing} is missing between {earlier.day} and {later.day}; prepare that day too"
            )


def _to_json(window: WindowManifest, folder: str) -> dict[str, Any]:
    def entry(day: Partition) -> dict[str, Any]:
        return {
            "day": day.day.isoformat(),
            "num_rows": day.num_rows,
            "num_slates": day.num_slates,
            "paths": [relative(path, folder) for path in day.paths],
            "files": [relative(file, folder) for file in day.files],
        }

    return {
        "digest": window.digest,
        "num_rows": window.num_rows,
        "days": [entry(day) for day in window.days],
        "heldout": window.heldout and entry(window.heldout),
    }


def _from_json(entry: Mapping[str, Any], folder: str) -> Partition:
    return Partition(
        paths=tuple(resolve(folder, path) for path in entry["paths"]),
        day=date.fromisoformat(entry["day"]),
        num_rows=entry["num_rows"],
        num_slates=entry["num_slates"],
        files=tuple(resolve(folder, file) for file in entry["files"]),
    )


def _partition(path: str, content: Mapping[str, Any]) -> Partition:
    return Partition(
        paths=(path,),
        day=date.fromisoformat(content["day"]),
        num_rows=content["num_rows"],
        num_slates=content["num_slates"],
        files=tuple(join(path, entry["name"]) for entry in content["files"]),
        shard=tuple(content.get("shard", (0, 1))),
    )
