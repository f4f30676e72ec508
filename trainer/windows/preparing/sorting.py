"""Takes the chunks of a day apart: sound rows into buckets, broken ones aside, samples of ids kept."""

import threading
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.recipe import Recipe
from trainer.windows.preparing.buckets import Buckets, Place, Ranges
from trainer.windows.preparing.ids import IdSamples
from trainer.windows.preparing.order import slate_words
from trainer.windows.preparing.scan import Chunk


class Sorter:
    """Takes chunks from many threads; what it holds does not depend on their order.

    Args:
        recipe: Seed of the order, and the tables that ids are rows of.
        ranges: Of this shard.
        buckets: Takes the rows of this shard.
        max_broken: Broken rows of the day that may be set aside; with more of them the day stops, and none is kept.
    """

    def __init__(self, recipe: Recipe, ranges: Ranges, buckets: Buckets, *, max_broken: int) -> None:
        self._recipe, self._ranges, self._buckets = recipe, ranges, buckets
        self._num_left = max_broken
        self._broken: list[tuple[Place, pa.Table]] = []
        self._ids: dict[int, IdSamples] = {}
        self._lock = threading.Lock()

    def take(self, chunk: Chunk) -> None:
        """Takes the rows that belong to this shard."""
        seed = self._recipe.window.shuffle_seed
        requests = chunk.table["request_id"].fill_null(0).to_numpy()
        bucket_N = self._ranges.bucket_of(slate_words(requests[chunk.good_N], seed))
        rows_N = chunk.good_N
        if self._ranges.num_shards > 1:
            is_ours_N = (bucket_N >= 0) & (bucket_N < self._ranges.num_buckets)
            rows_N, bucket_N = rows_N[is_ours_N], bucket_N[is_ours_N]
        self._sample_ids(chunk, rows_N)
        self._buckets.add(chunk.place, chunk.table, rows_N, bucket_N)
        if chunk.broken is not None:
            self._set_aside(chunk.place, chunk.broken)

    def _sample_ids(self, chunk: Chunk, rows_N: Any) -> None:
        with self._lock:
            samples = self._ids.setdefault(threading.get_ident(), IdSamples(self._recipe.tables))
        for column, sample in samples.of_column.items():
            check_N = chunk.text_checks.get(column)
            ids_N = chunk.table[column].fill_null(0).to_numpy()[rows_N]
            sample.add(ids_N, None if check_N is None else check_N[rows_N])

    def _set_aside(self, place: Place, broken: pa.Table) -> None:
        with self._lock:
            self._num_left -= broken.num_rows
            if self._num_left < 0:
                self._broken.clear()
                return
        requests = broken["request_id"].fill_null(0).to_numpy()
        is_ours_N = self._ranges.is_ours(slate_words(requests, self._recipe.window.shuffle_seed))
        with self._lock:
            self._broken.append((place, broken.filter(pa.array(is_ours_N))))

    def quarantine(self, schema: pa.Schema) -> pa.Table:
        """The broken rows of this shard, in the order in which they were found.

        Args:
            schema: Of the quarantine.
        """
        tables = [table for _, table in sorted(self._broken, key=lambda held: held[0])]
        return pa.concat_tables([schema.empty_table(), *tables])

    def ids(self) -> IdSamples:
        """Of the rows of this shard."""
        whole = IdSamples(self._recipe.tables)
        for samples in self._ids.values():
            whole.merge(samples)
        return whole


def reasons_of(quarantine: pa.Table) -> dict[str, int]:
    """How many rows were set aside for each reason."""
    reasons, counts = np.unique(quarantine["reason"].to_numpy(zero_copy_only=False).astype(str), return_counts=True)
    return dict(zip(reasons.tolist(), counts.tolist(), strict=True))
