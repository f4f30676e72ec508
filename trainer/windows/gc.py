"""What a store holds that nothing names any more: found first, removed only when asked for.

A partition is named by window manifests, a manifest by a model or a run of MLflow. Whatever is younger than the grace
period stays, since who wrote it may be about to name it.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from trainer.storage.filesystem import Stored, list_stored
from trainer.storage.publishing import delete, read_json, remove_empty_folders
from trainer.storage.uris import join, name_of, parent_of
from trainer.windows.manifest import PARTITION_JSON, read_window

WINDOW = "no model and no run names this window"
PARTITION = "no window names this day"
LEFTOVER = "a writer that was stopped or came second left it"
MEMO = "the day that it remembers is not there"


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """Files that can go together.

    Attributes:
        uri: A manifest, a partition's folder, a file in one, or a memo of what was prepared.
        reason: Why nobody misses it.
        files: Their URIs, in the order in which they are removed.
        num_bytes: Their size.
    """

    uri: str
    reason: str
    files: tuple[str, ...]
    num_bytes: int


def find_garbage(store: str, named: Collection[str], *, grace_s: float) -> list[Garbage]:
    """Looks for what can go; nothing is removed.

    Args:
        store: Folder of ``partitions/`` and ``windows/``.
        named: Digests of the windows that models and runs name.
        grace_s: What was written less than this ago stays, in seconds.

    Raises:
        InputError: The store cannot be listed, or a manifest in it cannot be read.
        StorageError: Storage failed for too long.
    """
    oldest_s = time.time() - grace_s
    windows = join(store, "windows")
    manifests = list_stored(windows)
    unnamed = [file for file in manifests if not _is_needed(file, named) and file.modified_s < oldest_s]
    kept = {file.name for file in manifests if file.name.endswith(".json")} - {file.name for file in unnamed}
    named_paths = {path for name in kept for path in _paths(join(windows, name))}
    gone = [_garbage(windows, [file], WINDOW if file.name.endswith(".json") else LEFTOVER) for file in unnamed]
    partitions = join(store, "partitions")
    files = list_stored(partitions, is_recursive=True)
    gone += _unnamed_files(partitions, files, named_paths, oldest_s)
    whole = {parent_of(file.name) for file in files if name_of(file.name) == PARTITION_JSON}
    left = {join(partitions, folder) for folder in whole} - {part.uri for part in gone}
    return gone + list(_stale_memos(store, left, oldest_s))


def remove_garbage(store: str, garbage: Sequence[Garbage], named: Collection[str], *, grace_s: float) -> list[Garbage]:
    """Removes what `find_garbage` found and what is still garbage now.

    A window's manifest goes before its days, and a day's ``partition.json`` before its rows, so that whatever is there
    at any moment is whole.

    Args:
        store: As for `find_garbage`.
        garbage: What it found.
        named: As for `find_garbage`.
        grace_s: As for `find_garbage`.

    Returns:
        What was removed.

    Raises:
        InputError: A file may not be removed.
        StorageError: Storage failed for too long.
    """
    wanted = set(garbage)
    removed = [part for part in find_garbage(store, named, grace_s=grace_s) if part in wanted]
    for part in removed:
        for file in part.files:
            delete(file)
        remove_empty_folders(part.uri if part.reason == PARTITION else parent_of(part.uri), within=store)
    return removed


def _is_needed(manifest: Stored, named: Collection[str]) -> bool:
    return manifest.name.endswith(".json") and manifest.name.removesuffix(".json") in named


def _paths(manifest: str) -> Iterator[str]:
    """The last two parts of the partitions that a window names: its day and its address."""
    window = read_window(manifest)
    for day in (*window.days, *filter(None, [window.heldout])):
        for path in day.paths:
            yield f"{name_of(parent_of(path))}/{name_of(path)}"


def _unnamed_files(
    partitions: str, files: Sequence[Stored], named_paths: Collection[str], oldest_s: float
) -> Iterator[Garbage]:
    for folder, group in groupby(files, key=lambda file: parent_of(file.name)):
        found = list(group)
        is_young = any(file.modified_s >= oldest_s for file in found)
        is_whole = any(name_of(file.name) == PARTITION_JSON for file in found)
        if is_whole and folder not in named_paths:
            if not is_young:
                yield _garbage(partitions, found, PARTITION)
            continue
        left = _leftovers(join(partitions, folder), found) if is_whole else found
        yield from (_garbage(partitions, [file], LEFTOVER) for file in left if file.modified_s < oldest_s)


def _stale_memos(store: str, left: Collection[str], oldest_s: float) -> Iterator[Garbage]:
    """Notes of `trainer.windows.preparation.prepare_day` on partitions that are gone, or about to go."""
    memos = join(store, "prepared")
    for memo in list_stored(memos, is_recursive=True):
        if memo.modified_s >= oldest_s:
            continue
        if not memo.name.endswith(".json"):
            yield _garbage(memos, [memo], LEFTOVER)
            continue
        address = read_json(join(memos, memo.name), "remove it")["address"]
        if join(store, "partitions", parent_of(memo.name), address) not in left:
            yield _garbage(memos, [memo], MEMO)


def _leftovers(folder: str, found: Sequence[Stored]) -> list[Stored]:
    """The files of a partition that it does not name."""
    content = read_json(join(folder, PARTITION_JSON), "remove that folder")
    names = {PARTITION_JSON, *_texts(content)}
    return [file for file in found if name_of(file.name) not in names]


def _texts(content: Any) -> Iterator[str]:
    """All texts in a JSON document: whichever field names a file, it is named."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | dict):
        for value in content.values() if isinstance(content, dict) else content:
            yield from _texts(value)


def _garbage(folder: str, files: Sequence[Stored], reason: str) -> Garbage:
    first = sorted(files, key=lambda file: name_of(file.name) != PARTITION_JSON)
    uris = tuple(join(folder, file.name) for file in first)
    return Garbage(
        uri=parent_of(uris[0]) if reason == PARTITION else uris[0],
        reason=reason,
        files=uris,
        num_bytes=sum(file.num_bytes for file in files),
    )
