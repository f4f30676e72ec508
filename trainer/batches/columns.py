"""Rows of the log contract as flat numpy arrays, ready to be gathered into batches.

Shape suffixes: R rows, N ids of all histories together, H label heads, U and P user and pin features.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from trainer.batches.batch import Batch
from trainer.batches.files import read_row_groups, row_groups_of
from trainer.batches.media import MEDIA_COLUMNS, MediaReader, PinMedia, require_media
from trainer.batches.slates import Ints, Sizes, places, slate_starts
from trainer.batches.source import Bools, Floats, Loaded, PinCounts, go_on
from trainer.recipe import Recipe
from trainer.windows.arrays import one_array
from trainer.windows.contract import WEIGHT
from trainer.windows.manifest import Partition

_FEATURE_COLUMNS = ("request_id", "user_id", "pin_id", "user_features", "pin_features", "history", "history_actions")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Rows in memory; a `trainer.batches.source.Source` of one chunk.

    Attributes:
        history_starts: Has R + 1 entries.
        weights: How many rows of the log each stands for; 1 where negatives were not sampled.
        media: Where the recipe has a vision-language encoder.
        The others are as in the log contract.
    """

    request_id: Ints
    user_id: Ints
    pin_id: Ints
    user_features: Floats
    pin_features: Floats
    history: Ints
    history_actions: NDArray[np.int8]
    history_starts: Ints
    labels: Floats
    weights: Floats
    media: PinMedia | None = None

    @classmethod
    def read(cls, partitions: Sequence[Partition], recipe: Recipe) -> "Columns":
        """Reads day partitions, oldest first; histories are cut to the recipe's most recent ``history_length``.

        With a vision-language encoder the media of each distinct pin are read too, the newest where they changed.

        Raises:
            InputError: A file cannot be read, or the encoder wants media, and a day has none or one that cannot be
                decoded.
            StorageError: Storage failed for too long.
        """
        groups = row_groups_of(partitions)
        builder = ColumnsBuilder(
            recipe,
            num_rows=sum(group.num_rows for group in groups),
            num_history=sum(group.num_history for group in groups),
        )
        for group, table in zip(groups, read_row_groups(groups, columns_of(recipe)), strict=True):
            builder.add(table, group.uri)
        return builder.finish()

    @classmethod
    def of_table(cls, table: pa.Table, recipe: Recipe, source: str = "table") -> "Columns":
        """Flattens a table in the log contract; a label that the table lacks reads as 0 (scoring needs none).

        Args:
            table: The rows.
            recipe: Names the labels, the length of histories and the vision-language encoder.
            source: Names the table in errors.

        Raises:
            InputError: The encoder wants media, and the table has none or one that cannot be decoded.
        """
        if recipe.vlm.encoder != "none":
            require_media(table.column_names, source)
        num_history = int(_flat(table, "history")[1][-1])
        builder = ColumnsBuilder(recipe, num_rows=table.num_rows, num_history=num_history)
        builder.add(table, source)
        return builder.finish()

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.request_id)

    @property
    def buffer_rows(self) -> int:
        """R: all are in memory."""
        return self.num_rows

    @property
    def slate_sizes(self) -> Sequence[Sizes]:
        """See `trainer.batches.source.Source`."""
        return [np.diff(slate_starts(self.request_id)).astype(np.int32)]

    def count_pins(self) -> PinCounts:
        """See `trainer.batches.source.Source`."""
        return PinCounts.of(self.pin_id)

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """See `trainer.batches.source.Source`."""
        yield getattr(self, name)

    def load(self, chunks: Ints, wanted: Bools, check: Callable[[], None] = go_on) -> Loaded:
        """See `trainer.batches.source.Source`."""
        return Loaded(columns=self, starts=slate_starts(self.request_id)[:-1])

    def gather(self, rows: Ints, *, slates: Ints, log_q: Floats, num_step_rows: int) -> Batch:
        """The rows at the given positions (B,) as one batch; ``log_q`` is indexed by row, ``slates`` by position."""
        first = self.history_starts[rows]
        lengths = self.history_starts[rows + 1] - first
        flat = places(first, lengths)
        return Batch(
            user_ids_B=torch.from_numpy(self.user_id[rows]),
            pin_ids_B=torch.from_numpy(self.pin_id[rows]),
            history_ids_N=torch.from_numpy(self.history[flat]),
            history_actions_N=torch.from_numpy(self.history_actions[flat].astype(np.int64)),
            history_lengths_B=torch.from_numpy(lengths),
            # Twice as fast as indexing, for rows of more than one number.
            user_features_BU=torch.from_numpy(self.user_features.take(rows, axis=0)),
            pin_features_BP=torch.from_numpy(self.pin_features.take(rows, axis=0)),
            labels_BH=torch.from_numpy(self.labels.take(rows, axis=0)),
            weights_B=torch.from_numpy(self.weights[rows]),
            slates_B=torch.from_numpy(slates),
            log_q_B=torch.from_numpy(log_q[rows]),
            num_step_rows=num_step_rows,
            media=self.media.gather(rows) if self.media is not None else None,
        )


def columns_of(recipe: Recipe) -> list[str]:
    """The columns of a prepared day that training reads, those that a day may lack among them."""
    media = [] if recipe.vlm.encoder == "none" else ["ts", *MEDIA_COLUMNS]
    return [*_FEATURE_COLUMNS, *recipe.logs.labels, WEIGHT, *media]


def decoded(table: pa.Table, name: str, recipe: Recipe) -> NDArray[Any]:
    """One of the attributes of `Columns` that have an entry a row, from a table in the log contract."""
    if name in ("request_id", "user_id", "pin_id"):
        return np.asarray(table[name].to_numpy(), dtype=np.int64)
    if name == "labels":
        return np.stack([_label(table, label) for label in recipe.logs.labels], axis=1)
    if name == "weights":
        there = WEIGHT in table.column_names
        return np.asarray(table[WEIGHT].to_numpy(), np.float32) if there else np.ones(table.num_rows, np.float32)
    num_features = {"user_features": recipe.logs.num_user_features, "pin_features": recipe.logs.num_pin_features}
    return _flat(table, name)[0].astype(np.float32, copy=False).reshape(table.num_rows, num_features[name])


def stored_as(name: str, recipe: Recipe) -> list[str]:
    """The columns of a prepared day that `decoded` reads for an attribute."""
    return {"labels": list(recipe.logs.labels), "weights": [WEIGHT]}.get(name, [name])


class ColumnsBuilder:
    """Fills rows in, part by part; the arrays are made once, and pages that stay empty take no memory.

    Args:
        recipe: Names the labels, the length of histories and the vision-language encoder.
        num_rows: Of all parts.
        num_history: Pins of all histories that will be given, or more.
    """

    def __init__(self, recipe: Recipe, *, num_rows: int, num_history: int) -> None:
        logs = recipe.logs
        self._recipe = recipe
        self._of_row: dict[str, NDArray[Any]] = {
            "request_id": np.empty(num_rows, np.int64),
            "user_id": np.empty(num_rows, np.int64),
            "pin_id": np.empty(num_rows, np.int64),
            "user_features": np.empty((num_rows, logs.num_user_features), np.float32),
            "pin_features": np.empty((num_rows, logs.num_pin_features), np.float32),
            "labels": np.empty((num_rows, len(logs.labels)), np.float32),
            "weights": np.empty(num_rows, np.float32),
        }
        num_kept = min(num_history, num_rows * recipe.model.history_length)
        self._history, self._actions = np.empty(num_kept, np.int64), np.empty(num_kept, np.int8)
        self._starts = np.zeros(num_rows + 1, np.int64)
        self._media = None if recipe.vlm.encoder == "none" else MediaReader(recipe.vlm)
        self._num_rows = 0

    def add(self, table: pa.Table, source: str, rows: Ints | None = None) -> None:
        """Adds rows of a table in the log contract.

        Args:
            table: The rows.
            source: Names the table in errors.
            rows: Which of them, ascending; None is all.

        Raises:
            InputError: An image cannot be decoded.
        """
        begin = self._num_rows
        end = self._num_rows = begin + (table.num_rows if rows is None else len(rows))
        for name, values in self._of_row.items():
            found = decoded(table, name, self._recipe)
            values[begin:end] = found if rows is None else found[rows]
        self._add_histories(table, rows, begin, end)
        if self._media is not None:
            kept = [name for name in ("pin_id", "ts", *MEDIA_COLUMNS) if name in table.column_names]
            shown = table.select(kept)
            self._media.add(shown if rows is None else shown.take(pa.array(rows)), source)

    def _add_histories(self, table: pa.Table, rows: Ints | None, begin: int, end: int) -> None:
        history, starts = _flat(table, "history")
        actions, _ = _flat(table, "history_actions")
        lengths = np.minimum(np.diff(starts), self._recipe.model.history_length)
        is_cut = lengths.sum() < len(history)
        kept: slice | Ints = slice(None)
        if rows is not None or is_cut:
            chosen = np.arange(table.num_rows) if rows is None else rows
            lengths = lengths[chosen]
            kept = places(starts[chosen], lengths)
        first = self._starts[begin]
        np.cumsum(lengths, out=self._starts[begin + 1 : end + 1])
        self._starts[begin + 1 : end + 1] += first
        self._history[first : self._starts[end]] = history[kept]
        self._actions[first : self._starts[end]] = actions[kept]

    def finish(self) -> Columns:
        """All rows that were added, which must be as many as were announced."""
        assert self._num_rows == len(self._of_row["request_id"]), "rows are missing"
        num_history = self._starts[-1]
        return Columns(
            **self._of_row,
            history=self._history[:num_history],
            history_actions=self._actions[:num_history],
            history_starts=self._starts,
            media=None if self._media is None else self._media.finish(self._of_row["pin_id"]),
        )


def _label(table: pa.Table, name: str) -> Floats:
    if name not in table.column_names:
        return np.zeros(table.num_rows, dtype=np.float32)
    return np.asarray(table[name].to_numpy(), dtype=np.float32)


def _flat(table: pa.Table, name: str) -> tuple[NDArray[Any], Ints]:
    """Values of a list column, and the R + 1 places where rows begin."""
    lists = one_array(table[name])
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return lists.flatten().to_numpy(zero_copy_only=False), offsets - offsets[0]
