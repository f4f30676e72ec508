"""Writes a day from its buckets: each ordered by itself, several files at once.

Shape suffixes: N rows.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trainer.errors import InputError
from trainer.recipe import Recipe
from trainer.storage.errors import StorageError
from trainer.storage.filesystem import stat
from trainer.storage.publishing import ROW_GROUP_ROWS, delete, leaf_path, parquet_writer
from trainer.storage.uris import is_gcs, join
from trainer.windows.contract import WEIGHT
from trainer.windows.manifest import publish_partition
from trainer.windows.preparing.buckets import Buckets
from trainer.windows.preparing.gather import gather
from trainer.windows.preparing.order import Keys, select
from trainer.windows.preparing.scan import share_out
from trainer.windows.quality.profile import DayProfile

Mask = NDArray[np.bool_]

_SPLIT_BITS = 40

FILE_ROWS = 8 * ROW_GROUP_ROWS
"""About how many rows a file holds: few enough that ranks and threads share a day out, many enough for long reads."""


@dataclass(kw_only=True)
class Written:
    """What lies in a folder now.

    Attributes:
        columns: Of the rows.
        files: ``name``, ``num_rows`` and ``num_bytes`` of each file, in the order of their rows.
        quarantine: The same of the file of rows that break the contract; None when there are none.
        num_slates: Slates.
        num_duplicates: Rows dropped because a newer one has their slate and pin.
        num_dropped_negatives: Rows that sampling dropped.
        profile: Of the rows.
    """

    columns: list[str]
    files: list[dict[str, Any]]
    quarantine: dict[str, Any] | None
    num_slates: int
    num_duplicates: int
    num_dropped_negatives: int
    profile: DayProfile

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return sum(file["num_rows"] for file in self.files)

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file["num_bytes"] for file in self.files)


class DayWriter:
    """Writes data files that nobody else's names collide with; after a failure none of them is left.

    Args:
        folder: Of the partition.
        recipe: Shape of the log, and the seed of the order.
        schema: Columns of the prepared day but for the weight.
        negative_rate: Share of rows without a positive label that stay.
        on_rows: Called with how many rows of a bucket are done, from several threads.
    """

    def __init__(
        self, folder: str, recipe: Recipe, schema: pa.Schema, negative_rate: float, on_rows: Callable[[int], None]
    ) -> None:
        self._folder, self._recipe, self._on_rows = folder, recipe, on_rows
        self._negative_rate = negative_rate
        weight = [pa.field(WEIGHT, pa.float32(), nullable=False)] if negative_rate < 1 else []
        self.schema = pa.schema([*schema, *weight])
        self._stored = stored_schema(self.schema)
        self._writer = uuid.uuid4().hex[:8]
        self._quarantine_name = f"quarantine-{self._writer}.parquet"

    def write(self, buckets: Buckets, quarantine: pa.Table) -> Written:
        """Writes everything.

        Args:
            buckets: The rows that obey the contract.
            quarantine: Those that do not.

        Raises:
            InputError: The folder cannot be written to.
            StorageError: Storage failed for too long.
        """
        parts = [_Part(number=number, buckets=chosen) for number, chosen in enumerate(_files(buckets.num_rows))]
        try:
            share_out(lambda part: self._write(part, buckets), parts)
            if quarantine.num_rows:
                with parquet_writer(join(self._folder, self._quarantine_name), quarantine.schema) as writer:
                    writer.write_table(quarantine, row_group_size=ROW_GROUP_ROWS)
        except BaseException:
            self._discard([*(self._name(part) for part in parts), self._quarantine_name])
            raise
        done = [part for part in parts if part.num_rows]
        profile = DayProfile(self._recipe.logs)
        for part in parts:
            profile.merge(part.profile or DayProfile(self._recipe.logs))
        return Written(
            columns=self.schema.names,
            files=[self._entry(self._name(part), part.num_rows) for part in done],
            quarantine=self._entry(self._quarantine_name, quarantine.num_rows) if quarantine.num_rows else None,
            num_slates=sum(part.num_slates for part in parts),
            num_duplicates=sum(part.num_duplicates for part in parts),
            num_dropped_negatives=sum(part.num_dropped_negatives for part in parts),
            profile=profile,
        )

    def publish(self, content: Mapping[str, Any], written: Written) -> None:
        """Names the files, once and last; see `trainer.windows.manifest.publish_partition`.

        Args:
            content: What ``partition.json`` will say.
            written: What `write` left.
        """
        try:
            is_ours = publish_partition(self._folder, content)
        except InputError:
            # In gs:// a lost answer may hide that it was published, and names this file.
            if not is_gcs(self._folder):
                self._discard([self._quarantine_name])
            raise
        if not is_ours:
            self._discard([self._quarantine_name])

    def _discard(self, names: Sequence[str]) -> None:
        """Removes what is there of files that nobody will name, as far as it can be removed."""
        for name in names:
            with suppress(InputError, StorageError):
                delete(join(self._folder, name))

    def _name(self, part: "_Part") -> str:
        return f"part-{part.number:05}-{self._writer}.parquet"

    def _entry(self, name: str, num_rows: int) -> dict[str, Any]:
        return {"name": name, "num_rows": num_rows, "num_bytes": stat(join(self._folder, name)).num_bytes}

    def _write(self, part: "_Part", buckets: Buckets) -> None:
        part.profile = DayProfile(self._recipe.logs)
        tables = self._ordered(part, buckets)
        with ExitStack() as stack:
            writer = None
            for table in _row_groups(tables):
                if writer is None:  # a file without rows is not begun
                    uri = join(self._folder, self._name(part))
                    writer = stack.enter_context(parquet_writer(uri, self._stored, encodings=_encodings(table)))
                writer.write_table(table.cast(self._stored), row_group_size=table.num_rows)

    def _ordered(self, part: "_Part", buckets: Buckets) -> Iterator[pa.Table]:
        assert part.profile is not None
        for bucket in part.buckets:
            table = buckets.read(bucket)
            keys = Keys.of(table, self._recipe.logs.labels)
            selection = select(keys, self._recipe.window.shuffle_seed, self._negative_rate)
            newest = gather(table, selection.rows_N)
            # Before sampling: a sampled day and one that is not are held against each other.
            part.profile.add(newest)
            kept = self._sampled(newest, keys.is_positive_N[selection.rows_N], selection.is_sampled_N)
            part.num_rows += kept.num_rows
            part.num_slates += selection.num_slates
            part.num_duplicates += table.num_rows - newest.num_rows
            part.num_dropped_negatives += newest.num_rows - kept.num_rows
            self._on_rows(table.num_rows)
            yield kept

    def _sampled(self, table: pa.Table, is_positive_N: Mask, is_sampled_N: Mask) -> pa.Table:
        if self._negative_rate == 1:
            return pa.Table.from_arrays(table.columns, schema=self.schema)
        weight_N = np.where(is_positive_N[is_sampled_N], 1.0, 1.0 / self._negative_rate).astype(np.float32)
        columns = gather(table, np.flatnonzero(is_sampled_N)).columns
        return pa.Table.from_arrays([*columns, pa.chunked_array([weight_N])], schema=self.schema)


@dataclass(kw_only=True)
class _Part:
    """One file: which buckets it takes, and what came of them."""

    number: int
    buckets: tuple[int, ...]
    num_rows: int = 0
    num_slates: int = 0
    num_duplicates: int = 0
    num_dropped_negatives: int = 0
    profile: DayProfile | None = None


def _encodings(table: pa.Table) -> dict[str, str]:
    """How lists are encoded, told from some rows: what is smaller, and faster to write and to read.

    Bytes of the same place side by side suit floats, and ids that leave their upper bytes zero. Ids that are hashes
    fill all bytes; only their repetitions can be saved, by the dictionary that is the default.
    """
    split = {field.name: field for field in table.schema if field.type == pa.list_(pa.float32())}
    largest = pc.max(pc.list_flatten(table["history"])).as_py() or 0
    if largest < 2**_SPLIT_BITS:
        split["history"] = table.schema.field("history")
    return {leaf_path(field): "BYTE_STREAM_SPLIT" for field in split.values()}


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """How columns of the contract are written: lists say that no element is null, and decode in a quarter less time."""
    return pa.schema([_without_nulls(field) for field in schema])


def _without_nulls(field: pa.Field) -> pa.Field:
    if not pa.types.is_list(field.type):
        return field
    return field.with_type(pa.list_(pa.field("element", field.type.value_type, nullable=False)))


def _files(num_rows: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Buckets by the file that takes them."""
    chosen: list[int] = []
    for bucket, rows in enumerate(num_rows):
        if rows:
            chosen.append(bucket)
        if sum(num_rows[of] for of in chosen) >= FILE_ROWS:
            yield tuple(chosen)
            chosen = []
    if chosen:
        yield tuple(chosen)


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in whole slates, `ROW_GROUP_ROWS` and what ends a slate at a time but for the last."""
    held: list[pa.Table] = []
    num_held = 0
    for table in tables:
        request_N = table["request_id"].to_numpy()
        ends = np.append(np.flatnonzero(np.diff(request_N)) + 1, table.num_rows)
        begin = 0
        while (wanted := begin + ROW_GROUP_ROWS - num_held) <= table.num_rows:
            end = int(ends[np.searchsorted(ends, wanted)])
            yield pa.concat_tables([*held, table.slice(begin, end - begin)])
            begin, held, num_held = end, [], 0
        if begin < table.num_rows:
            held.append(table.slice(begin))
            num_held += table.num_rows - begin
    if held:
        yield pa.concat_tables(held)
