"""What an engineer would read prepared days with: Hugging Face `datasets`, streaming, and PyTorch's own DataLoader.

Both make the tensors of a `trainer.batches.batch.Batch` but for slates, log q and weights, which they know nothing of,
and shuffle rows, not slates: less to do than our reader has. No row is touched by Python where they can avoid it.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from trainer.recipe import Recipe

Tensors = dict[str, Tensor]

_IDS = {"user_ids_B": "user_id", "pin_ids_B": "pin_id"}
_FEATURES = {"user_features_BU": "user_features", "pin_features_BP": "pin_features"}


def columns_of(recipe: Recipe) -> list[str]:
    """What both read."""
    return [*_IDS.values(), *_FEATURES.values(), "history", "history_actions", *recipe.logs.labels]


def tensors_of(table: pa.Table, recipe: Recipe) -> Tensors:
    """Rows as tensors; the collate of both."""
    history, actions = (table[name].combine_chunks() for name in ("history", "history_actions"))
    features = {name: table[column].combine_chunks() for name, column in _FEATURES.items()}
    labels = np.stack([table[name].to_numpy() for name in recipe.logs.labels], axis=1)
    return {
        **{name: torch.from_numpy(table[column].to_numpy().copy()) for name, column in _IDS.items()},
        **{
            name: torch.from_numpy(lists.flatten().to_numpy().reshape(len(lists), -1).copy())
            for name, lists in features.items()
        },
        "history_ids_N": torch.from_numpy(history.flatten().to_numpy().copy()),
        "history_actions_N": torch.from_numpy(actions.flatten().to_numpy().astype(np.int64)),
        "history_lengths_B": torch.from_numpy(history.value_lengths().to_numpy().astype(np.int64)),
        "labels_BH": torch.from_numpy(labels.astype(np.float32)),
    }


class ShuffledFiles(IterableDataset[Tensors]):
    """Record batches of files in an order of their own each pass; rows are drawn from a buffer of them.

    Args:
        files: Parquet files; workers share them out.
        recipe: Names the columns, the size of buffers and of batches, and the seed.
    """

    def __init__(self, files: Sequence[str], recipe: Recipe) -> None:
        self._files, self._recipe = files, recipe

    def __iter__(self) -> Iterator[Tensors]:
        worker = get_worker_info()
        mine = self._files[worker.id :: worker.num_workers] if worker else self._files
        rng = np.random.default_rng(self._recipe.training.seed)
        waiting: list[pa.RecordBatch] = []
        for index in rng.permutation(len(mine)):
            with pq.ParquetFile(mine[index]) as file:
                for batch in file.iter_batches(batch_size=65_536, columns=columns_of(self._recipe)):
                    waiting.append(batch)
                    if sum(map(len, waiting)) >= self._recipe.training.shuffle_rows:
                        yield from self._drawn(waiting, rng)
                        waiting = []
        if waiting:
            yield from self._drawn(waiting, rng)

    def _drawn(self, batches: list[pa.RecordBatch], rng: np.random.Generator) -> Iterator[Tensors]:
        buffer = pa.Table.from_batches(batches).combine_chunks()
        order = rng.permutation(buffer.num_rows)
        size = self._recipe.training.batch_rows
        for begin in range(0, len(order), size):
            yield tensors_of(buffer.take(pa.array(order[begin : begin + size])), self._recipe)


def data_loader(files: Sequence[str], recipe: Recipe, *, num_workers: int) -> Iterator[Tensors]:
    """A pass of PyTorch's DataLoader over whole batches."""
    loader: DataLoader[Tensors] = DataLoader(
        ShuffledFiles(files, recipe),
        batch_size=None,
        num_workers=num_workers,
        prefetch_factor=4 if num_workers else None,
    )
    return iter(loader)


def hugging_face(files: Sequence[str], recipe: Recipe, *, by_row: bool) -> Iterator[Tensors]:
    """A pass of a streamed Hugging Face data set.

    Args:
        files: Parquet files.
        recipe: Names the columns, the size of buffers and of batches, and the seed.
        by_row: Shuffle with ``shuffle(buffer_size)``, as their documentation says, which takes row by row; else shuffle
            tables of a buffer's size, which is faster.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from datasets import load_dataset

    rows: Any = load_dataset(
        "parquet", data_files={"train": list(files)}, split="train", streaming=True, columns=columns_of(recipe)
    )
    training = recipe.training
    if by_row:
        rows = rows.shuffle(seed=training.seed, buffer_size=training.shuffle_rows).with_format("arrow")
    else:
        rng = np.random.default_rng(training.seed)

        def drawn(table: pa.Table) -> pa.Table:
            return table.combine_chunks().take(pa.array(rng.permutation(table.num_rows)))

        rows = rows.with_format("arrow").map(drawn, batched=True, batch_size=training.shuffle_rows)
    for table in rows.iter(batch_size=training.batch_rows):
        yield tensors_of(table, recipe)
