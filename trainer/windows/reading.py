"""Holds a whole day of a log against the contract and collects everything that is wrong with it, in flat memory."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa

from trainer.errors import InputError
from trainer.recipe import LogsConfig
from trainer.windows.logs import day_folder
from trainer.windows.preparing.buckets import Buckets, Ranges
from trainer.windows.preparing.inputs import DayInputs, Listing, list_day, open_day
from trainer.windows.preparing.order import Keys, select, slate_words
from trainer.windows.preparing.scan import Chunk, scan
from trainer.windows.preparing.tally import Sighting, Tally

_KEY_COLUMNS = ("request_id", "pin_id", "ts", "position")
_BUCKET_ROWS = 2**20


@dataclass(frozen=True, kw_only=True)
class DayReading:
    """One day as it was found.

    Attributes:
        day: The UTC day.
        num_rows: Rows of its files.
        num_broken: Those that break the contract.
        num_slates: Distinct ``request_id`` among the others.
        num_duplicates: Of the others those that preparation will drop because a newer one has their (``request_id``,
            ``pin_id``).
        num_positive: On how many of the others a label is true, duplicates among them, by label.
        problems: One line each, with file, column, row and remedy; with any, only `num_rows` and `num_broken` tell.
        file_problems: Those of them that are about a whole file or the day.
        sightings: The others, by file and rule.
    """

    day: date
    num_rows: int
    num_broken: int
    num_slates: int
    num_duplicates: int
    num_positive: dict[str, int]
    problems: tuple[str, ...]
    file_problems: tuple[str, ...]
    sightings: tuple[Sighting, ...]


def inspect_day(logs: LogsConfig, day: date, late_hours: int = 0) -> DayReading:
    """Reads a day and collects everything that breaks the contract.

    Args:
        logs: Where the log lies, and its shape.
        day: The UTC day.
        late_hours: How long after a day its rows may still come, in the next day's folder.

    Raises:
        InputError: There is no such day, or its files change while they are read.
        StorageError: Storage failed for too long.
    """
    listing = list_day(logs.uri, day, late_hours)
    inputs = open_day(logs, listing)
    tally = Tally(inputs.problems)
    counts = _Counts(logs, inputs)
    with Buckets(counts.ranges.num_buckets, counts.schema) as buckets:
        scan(inputs, logs, listing, late_hours, tally, lambda chunk: counts.take(chunk, buckets))
        refuse_changes(logs, listing, inputs, late_hours)
        problems = tally.problems()
        if not problems and not tally.num_rows:
            problems = [no_rows(logs, day)]
        num_slates, num_duplicates = (0, 0) if problems else counts.slates_and_duplicates(buckets)
    return DayReading(
        day=day,
        num_rows=tally.num_rows,
        num_broken=tally.num_broken,
        num_slates=num_slates,
        num_duplicates=num_duplicates,
        num_positive=dict(counts.num_positive),
        problems=tuple(problems),
        file_problems=tuple(line for _, line in sorted(tally.lines)) or (() if tally.sightings() else tuple(problems)),
        sightings=tuple(tally.sightings()),
    )


def refuse_changes(logs: LogsConfig, listing: Listing, inputs: DayInputs, late_hours: int) -> None:
    """Refuses files that are no longer what they were when they were listed.

    Raises:
        InputError: One is not.
    """
    after = list_day(logs.uri, listing.day, late_hours)
    # Others of the next day's folder may well come while this day is read.
    late = [list(_late_in_use(of, inputs)) for of in (listing, after)]
    if listing.files != after.files or late[0] != late[1]:
        folder = day_folder(logs.uri, listing.day)
        raise InputError(f"{folder}: files changed while they were read; run again when they are complete")


def no_rows(logs: LogsConfig, day: date) -> str:
    """The line for a day that is there and empty."""
    return f"{day_folder(logs.uri, day)}: the day has no rows; write it again or choose another date"


def _late_in_use(listing: Listing, inputs: DayInputs) -> Iterator[object]:
    names = {file.name for file in inputs.files if file.is_late}
    return (file for file in listing.late_files if file.name in names)


class _Counts:
    """What a day holds, told from its keys alone."""

    def __init__(self, logs: LogsConfig, inputs: DayInputs) -> None:
        self._logs = logs
        self.num_positive: Counter[str] = Counter(dict.fromkeys(logs.labels, 0))
        self.ranges = Ranges(shard=0, num_shards=1, num_buckets=inputs.num_rows // _BUCKET_ROWS + 1)
        names = [*_KEY_COLUMNS, *logs.labels]
        self.schema = pa.schema([inputs.schema.field(name) for name in names])
        self._is_whole = not inputs.problems

    def take(self, chunk: Chunk, buckets: Buckets) -> None:
        if not self._is_whole:
            return
        keys = chunk.table.select(self.schema.names)
        for label in self._logs.labels:
            is_true = keys[label].fill_null(False).to_numpy()[chunk.good_N]
            self.num_positive[label] += int(np.count_nonzero(is_true))
        requests = keys["request_id"].fill_null(0).to_numpy()[chunk.good_N]
        buckets.add(chunk.place, keys, chunk.good_N, self.ranges.bucket_of(slate_words(requests, 0)))

    def slates_and_duplicates(self, buckets: Buckets) -> tuple[int, int]:
        num_slates = num_newest = 0
        for bucket in range(self.ranges.num_buckets):
            table = buckets.read(bucket)
            found = select(Keys.of(table, self._logs.labels), seed=0, negative_rate=1)
            num_slates += found.num_slates
            num_newest += len(found.rows_N)
        return num_slates, sum(buckets.num_rows) - num_newest
