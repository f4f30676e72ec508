"""Rows of the log contract as flat numpy arrays, ready to be gathered into batches.

Shape suffixes: R rows, N ids of all histories together, H label heads, U and P user and pin features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from trainer.batches.batch import Batch
from trainer.batches.media import MEDIA_COLUMNS, MediaReader, PinMedia, require_media
from trainer.recipe import Recipe
from trainer.windows.manifest import Partition

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_FEATURE_COLUMNS = ("request_id", "user_id", "pin_id", "user_features", "pin_features", "history", "history_actions")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Rows in memory.

    Attributes:
        history_starts: Has R + 1 entries.
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
    media: PinMedia | None = None

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.request_id)

    @classmethod
    def read(cls, partitions: Sequence[Partition], recipe: Recipe) -> "Columns":
        """Reads day partitions, oldest first; histories are cut to the recipe's most recent ``history_length``.

        With a vision-language encoder the media of each distinct pin are read too, the newest where they changed.

        Raises:
            InputError: The encoder wants media, and a day has none or one that cannot be decoded.
        """
        names = [*_FEATURE_COLUMNS, *recipe.logs.labels]
        paths = [Path(partition.path) / "part-00000.parquet" for partition in partitions]
        columns = cls._of_rows(pa.concat_tables(pq.read_table(path, columns=names) for path in paths), recipe)
        if recipe.vlm.encoder == "none":
            return columns
        media = MediaReader(recipe.vlm)
        for path in paths:
            require_media(pq.read_schema(path).names, str(path))
            media.add(pq.read_table(path, columns=["pin_id", "ts", *MEDIA_COLUMNS]), str(path))
        return replace(columns, media=media.finish(columns.pin_id))

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
        columns = cls._of_rows(table, recipe)
        if recipe.vlm.encoder == "none":
            return columns
        require_media(table.column_names, source)
        media = MediaReader(recipe.vlm)
        media.add(table, source)
        return replace(columns, media=media.finish(columns.pin_id))

    @classmethod
    def _of_rows(cls, table: pa.Table, recipe: Recipe) -> "Columns":
        history, history_starts = _flat(table, "history")
        actions, _ = _flat(table, "history_actions")
        kept, starts = _cut(history_starts, recipe.model.history_length)
        heads = [_labels(table, label) for label in recipe.logs.labels]
        return cls(
            request_id=_ints(table, "request_id"),
            user_id=_ints(table, "user_id"),
            pin_id=_ints(table, "pin_id"),
            user_features=_matrix(table, "user_features"),
            pin_features=_matrix(table, "pin_features"),
            history=history[kept],
            history_actions=actions[kept],
            history_starts=starts,
            labels=np.stack(heads, axis=1),
        )

    def gather(self, rows: Ints, *, slates: Ints, log_q: Floats, num_step_rows: int) -> Batch:
        """The rows at the given positions (B,) as one batch; ``log_q`` is indexed by row, ``slates`` by position."""
        first, end = self.history_starts[rows], self.history_starts[rows + 1]
        lengths = end - first
        flat = np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        return Batch(
            user_ids_B=torch.from_numpy(self.user_id[rows]),
            pin_ids_B=torch.from_numpy(self.pin_id[rows]),
            history_ids_N=torch.from_numpy(self.history[flat]),
            history_actions_N=torch.from_numpy(self.history_actions[flat].astype(np.int64)),
            history_lengths_B=torch.from_numpy(lengths),
            user_features_BU=torch.from_numpy(self.user_features[rows]),
            pin_features_BP=torch.from_numpy(self.pin_features[rows]),
            labels_BH=torch.from_numpy(self.labels[rows]),
            slates_B=torch.from_numpy(slates),
            log_q_B=torch.from_numpy(log_q[rows]),
            num_step_rows=num_step_rows,
            media=self.media.gather(rows) if self.media is not None else None,
        )


def _ints(table: pa.Table, name: str) -> Ints:
    return np.asarray(table[name].to_numpy(), dtype=np.int64)


def _labels(table: pa.Table, name: str) -> Floats:
    if name not in table.column_names:
        return np.zeros(table.num_rows, dtype=np.float32)
    return np.asarray(table[name].to_numpy(), dtype=np.float32)


def _flat(table: pa.Table, name: str) -> tuple[NDArray[Any], Ints]:
    """Values of a list column, and the R + 1 places where rows begin."""
    column = table[name].combine_chunks()
    lengths = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return column.flatten().to_numpy(zero_copy_only=False), np.concatenate([[0], np.cumsum(lengths)])


def _matrix(table: pa.Table, name: str) -> Floats:
    values, _ = _flat(table, name)
    return values.astype(np.float32, copy=False).reshape(table.num_rows, -1)


def _cut(starts: Ints, length: int) -> tuple[Ints, Ints]:
    """Positions of the first ``length`` items of each list, and the new starts."""
    lengths = np.minimum(np.diff(starts), length)
    new_starts = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.repeat(starts[:-1] - new_starts[:-1], lengths) + np.arange(new_starts[-1])
    return positions, new_starts
