"""Prepares one day of a log for training: checked, without duplicates, shuffled by slate, written once.

A prepared day is immutable and content-addressed: its address is the hash of its input files, of this preparation's
version and of the settings that shape it. So the retrain of the next day finds all days but one already there, and a
corrected or late input makes a new version of its day while windows that name the old one keep it.

Rows stream through twice: files are read, checked and set apart by ranges of the order (`preparing.scan`,
`preparing.buckets`); then each range is ordered by itself and written (`preparing.order`, `preparing.writing`). Memory
is flat, whatever the day's size. A day too large for one host is prepared in shards: each host reads the whole day and
keeps the slates of its own range.
"""

import hashlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from tqdm import tqdm

from trainer import logs as log_lines
from trainer.errors import InputError
from trainer.recipe import Recipe
from trainer.storage.filesystem import exists
from trainer.storage.publishing import read_json, write_json
from trainer.storage.uris import join, name_of
from trainer.windows.manifest import PARTITION_JSON
from trainer.windows.preparing.buckets import Buckets, Ranges
from trainer.windows.preparing.inputs import DayInputs, Listing, fingerprints, list_day, open_day
from trainer.windows.preparing.scan import quarantine_schema, scan
from trainer.windows.preparing.sorting import Sorter, reasons_of
from trainer.windows.preparing.tally import Tally
from trainer.windows.preparing.writing import DayWriter, Written
from trainer.windows.quality.profile import PROFILE_VERSION
from trainer.windows.reading import no_rows, refuse_changes

PREPARATION_VERSION = 4
"""Raise it whenever the same inputs and settings would give other rows, another order, or row groups cut otherwise."""

BUCKET_BYTES = 32 * 1024**2
"""About what a range of rows is, decoded, that is ordered at a time."""

_MAX_BUCKETS = 4096
_SETTLED_S = 2.0
"""A file that was written so shortly before it was looked at may change once more within its clock's resolution."""

_log = logging.getLogger(__name__)


def prepare_day(recipe: Recipe, day: date, store: str, *, is_heldout: bool = False, shard: int = 0) -> str:
    """Prepares `day`, or one shard of it, unless it is there already, and says where it lies.

    Exact duplicates of (``request_id``, ``pin_id``) are dropped but for the newest ``ts``. The rows of a slate stay
    together, in the order of ``position``; the slates are shuffled by the recipe's seed. Rows that break the contract
    are set aside, as long as they are few. Two processes that prepare one day at once end with one result and no
    damage.

    Args:
        recipe: Where the log lies, its shape, and how days are prepared.
        day: UTC day.
        store: Folder that everything we write is kept in.
        is_heldout: Whether models are judged on it: its negatives are never sampled.
        shard: Which of the recipe's ``window.num_shards`` ranges of slates.

    Returns:
        URI of the partition's folder, ``<store>/partitions/dt=YYYY-MM-DD/<address>``; its ``partition.json`` names its
        files.

    Raises:
        InputError: There is no such day, it breaks the log contract, or `store` cannot be written to. Nothing is
            published then.
        StorageError: Storage failed for too long.
    """
    started_at_s, started_s = time.time(), time.monotonic()
    task = _Task(recipe=recipe, day=day, store=store, is_heldout=is_heldout, shard=shard)
    listing = list_day(recipe.logs.uri, day, recipe.window.late_hours)
    memo = task.memo(listing)
    known = task.folder(read_json(memo, "remove it")["address"]) if exists(memo) else None
    if known and exists(join(known, PARTITION_JSON)):
        _log.info("%s: prepared already", known)
        return known
    folder = _prepare(task, listing, started_s)
    if listing.modified_s < started_at_s - _SETTLED_S:
        write_json(memo, {"address": name_of(folder)})
    return folder


@dataclass(frozen=True, kw_only=True)
class _Task:
    """What is to be prepared."""

    recipe: Recipe
    day: date
    store: str
    is_heldout: bool
    shard: int

    @property
    def negative_rate(self) -> float:
        return 1.0 if self.is_heldout else self.recipe.window.negative_rate

    def folder(self, address: str) -> str:
        return join(self.store, "partitions", f"dt={self.day}", address)

    def memo(self, listing: Listing) -> str:
        """Where it is kept what a state of the log was prepared as, so that telling so again reads none of it."""
        state = {"uri": self.recipe.logs.uri, "files": listing.to_json(), **self.identity()}
        return join(self.store, "prepared", f"dt={self.day}", f"{_digest(state)}.json")

    def address(self, inputs: Mapping[str, Any]) -> str:
        return _digest({**inputs, **self.identity()})

    def identity(self) -> dict[str, Any]:
        """All that makes it another prepared day, but for its inputs."""
        shard = {"shard": self.shard_of} if self.recipe.window.num_shards > 1 else {}
        return {
            "day": self.day.isoformat(),
            "preparation_version": PREPARATION_VERSION,
            "profile_version": PROFILE_VERSION,
            "settings": self.settings(),
            **shard,
        }

    @property
    def shard_of(self) -> list[int]:
        return [self.shard, self.recipe.window.num_shards]

    def settings(self) -> dict[str, Any]:
        """What of the recipe shapes a prepared day."""
        logs, window = self.recipe.logs, self.recipe.window
        return {
            "labels": list(logs.labels),
            "num_user_features": logs.num_user_features,
            "num_pin_features": logs.num_pin_features,
            "shuffle_seed": window.shuffle_seed,
            "late_hours": window.late_hours,
            "negative_rate": self.negative_rate,
            "max_quarantined_share": window.max_quarantined_share,
        }


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _prepare(task: _Task, listing: Listing, started_s: float) -> str:
    recipe = task.recipe
    inputs = open_day(recipe.logs, listing)
    refuse([line for _, line in inputs.problems])
    found = _inputs_json(inputs)
    folder = task.folder(task.address(found))
    if exists(join(folder, PARTITION_JSON)):
        _log.info("%s: prepared already", folder)
        return folder
    ranges = _ranges(task, inputs)
    tally = Tally()
    with Buckets(ranges.num_buckets, inputs.schema) as buckets:
        max_broken = int(recipe.window.max_quarantined_share * inputs.num_rows)
        sorter = Sorter(recipe, ranges, buckets, max_broken=max_broken)
        with _progress(f"read {task.day}", inputs.num_rows) as advance:
            scan(inputs, recipe.logs, listing, recipe.window.late_hours, tally, sorter.take, advance)
        refuse_changes(recipe.logs, listing, inputs, recipe.window.late_hours)
        _refuse_breaches(recipe, listing, tally)
        quarantine = sorter.quarantine(quarantine_schema(inputs.schema))
        with _progress(f"write {task.day}", sum(buckets.num_rows)) as advance:
            writer = DayWriter(folder, recipe, inputs.schema, task.negative_rate, advance)
            written = writer.write(buckets, quarantine)
        num_raw_rows = sum(buckets.num_rows) + quarantine.num_rows
    for file in inputs.files:
        if not file.is_late:
            written.profile.add_file(file.found)
    filters = {
        "num_raw_rows": num_raw_rows,
        "num_duplicates": written.num_duplicates,
        "num_dropped_negatives": written.num_dropped_negatives,
        "num_quarantined": quarantine.num_rows,
        "quarantined": reasons_of(quarantine),
        "num_left_to_the_day_before": tally.num_left if task.shard == 0 else 0,
    }
    content = {**found, **_partition_json(task, inputs, written), "filters": filters, "ids": sorter.ids().to_json()}
    writer.publish(content, written)
    _say_done(folder, written, num_raw_rows, time.monotonic() - started_s)
    return folder


def _ranges(task: _Task, inputs: DayInputs) -> Ranges:
    num_shards = task.recipe.window.num_shards
    num_buckets = -(-inputs.num_bytes // (BUCKET_BYTES * num_shards))
    return Ranges(shard=task.shard, num_shards=num_shards, num_buckets=min(max(num_buckets, 1), _MAX_BUCKETS))


def _inputs_json(inputs: DayInputs) -> dict[str, Any]:
    """What each file was; those of the next day's folder apart, whose names may be the same."""
    found = fingerprints(inputs.files)
    entries = {
        is_late: [asdict(of) for file, of in zip(inputs.files, found, strict=True) if file.is_late == is_late]
        for is_late in (False, True)
    }
    return {"inputs": entries[False], **({"late_inputs": entries[True]} if entries[True] else {})}


def _partition_json(task: _Task, inputs: DayInputs, written: Written) -> dict[str, Any]:
    return {
        **task.identity(),
        "num_rows": written.num_rows,
        "num_slates": written.num_slates,
        "columns": written.columns,
        "files": written.files,
        "quarantine": written.quarantine,
        "profile": written.profile.to_json(),
    }


def refuse(problems: Sequence[str]) -> None:
    """Stops where there is a problem.

    Raises:
        InputError: The first problem, and how many more there are.
    """
    if problems:
        first, *others = problems
        more = f" ({len(others)} more problems: `thawline data check` lists them)" if others else ""
        raise InputError(first + more)


def _refuse_breaches(recipe: Recipe, listing: Listing, tally: Tally) -> None:
    if tally.lines:
        refuse(tally.problems())
    if not tally.num_rows:
        raise InputError(no_rows(recipe.logs, listing.day))
    if tally.num_broken > recipe.window.max_quarantined_share * tally.num_rows:
        refuse(tally.problems())


@contextmanager
def _progress(title: str, num_rows: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; many threads may advance it."""
    is_hidden = True if log_lines.are_json() else None
    with tqdm(total=num_rows, desc=title, unit="row", unit_scale=True, file=sys.stderr, disable=is_hidden) as bar:
        lock = threading.Lock()

        def advance(num_rows: int) -> None:
            with lock:
                bar.update(num_rows)

        yield advance


def _say_done(folder: str, written: Written, num_raw_rows: int, duration_s: float) -> None:
    facts: dict[str, Any] = {"num_raw_rows": num_raw_rows, "num_rows": written.num_rows, "num_bytes": written.num_bytes}
    message = f"{folder}: {num_raw_rows:,} rows made into {written.num_rows:,}, {written.num_bytes / 1e6:,.1f} MB, "
    message += f"in {duration_s:.1f} s"
    if log_lines.are_json():
        log_lines.say(message, **facts, duration_s=round(duration_s, 3))
    else:
        _log.info(message)
