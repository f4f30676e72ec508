"""Rows of the log contract as flat numpy arrays, ready to be gathered into batches.

Shape suffixes: R rows, N ids of all histories together, H label heads, U and P user and pin features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from trainer.batches.batch import Batch
from trainer.windows.manifest import Partition

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_FEATURE_COLUMNS = ("request_id", "user_id", "pin_id", "user_features", "pin_features", "history", "history_actions")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Rows in memory; ``history_starts`` has R + 1 entries."""

    request_id: Ints
    user_id: Ints
    pin_id: Ints
    user_features: Floats
    pin_features: Floats
    history: Ints
    history_actions: NDArray[np.int8]
    history_starts: Ints
    labels: Floats

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.request_id)

    @classmethod
    def read(cls, partitions: Sequence[Partition], labels: Sequence[str], history_length: int) -> "Columns":
        """Reads day partitions one after the other; histories are cut to their most recent ``history_length``."""
        names = [*_FEATURE_COLUMNS, *labels]
        tables = [pq.read_table(Path(partition.path) / "part-00000.parquet", columns=names) for partition in partitions]
        return cls.of_table(pa.concat_tables(tables), labels, history_length)

    @classmethod
    def of_table(cls, table: pa.Table, labels: Sequence[str], history_length: int) -> "Columns":
        """Flattens a table in the log contract; a label that the table lacks reads as 0 (scoring needs none)."""
        history, history_starts = _flat(table, "history")
        actions, _ = _flat(table, "history_actions")
        kept, starts = _cut(history_starts, history_length)
        heads = [_labels(table, label) for label in labels]
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
