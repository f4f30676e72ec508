"""Rows of a day set apart by ranges of their slate's word, on local disk, so that a range at a time fits in memory.

The ranges are in the order of the prepared day: one after another, each ordered by itself, they are that order.
Shape suffixes: N rows.
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.errors import InputError
from trainer.windows.preparing.gather import gather
from trainer.windows.preparing.order import Words

Place = tuple[int, ...]
"""Where a piece of rows was found; pieces of a bucket come back in the order of their places."""


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Equal ranges of the words of one shard.

    Attributes:
        shard: Its number, from 0.
        num_shards: Of how many.
        num_buckets: Ranges within the shard.
    """

    shard: int
    num_shards: int
    num_buckets: int

    def bucket_of(self, words_N: Words) -> NDArray[np.int64]:
        """The number of the range that each word falls into; of words outside the shard, none of its numbers."""
        upper_N = words_N >> np.uint64(32)
        number_N = (upper_N * np.uint64(self.num_shards * self.num_buckets)) >> np.uint64(32)
        return number_N.astype(np.int64) - self.shard * self.num_buckets

    def is_ours(self, words_N: Words) -> NDArray[np.bool_]:
        """Whether each word falls into the shard."""
        bucket_N = self.bucket_of(words_N)
        return (bucket_N >= 0) & (bucket_N < self.num_buckets)


@dataclass(frozen=True, kw_only=True)
class _Piece:
    place: Place
    offset: int
    num_bytes: int


class Buckets:
    """Pieces of rows by bucket. Many threads may add at once; what is read was all added before.

    Args:
        num_buckets: Buckets; with a single one everything stays in memory.
        schema: Of all pieces.

    Attributes:
        num_rows: Rows by bucket.

    Raises:
        InputError: There is no place for a temporary file.
    """

    def __init__(self, num_buckets: int, schema: pa.Schema) -> None:
        self.num_rows = [0] * num_buckets
        self._schema = schema
        self._pieces: list[list[_Piece]] = [[] for _ in range(num_buckets)]
        self._held: list[tuple[Place, pa.Table]] = []
        self._end = 0
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        if num_buckets > 1:
            # It has no name: however this process ends, the file ends with it.
            with _spilling():
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # `__exit__` closes it

    def add(self, place: Place, table: pa.Table, rows_N: NDArray[np.int64], bucket_N: NDArray[np.int64]) -> None:
        """Takes rows in, each into its bucket.

        Args:
            place: Where they were found.
            table: The rows, and maybe others.
            rows_N: Their numbers in the table, ascending.
            bucket_N: The bucket of each.

        Raises:
            InputError: The disk is full.
        """
        if not len(rows_N):
            return
        if self._file is None:
            with self._lock:
                self._held.append((place, table if len(rows_N) == table.num_rows else gather(table, rows_N)))
                self.num_rows[0] += len(rows_N)
            return
        order = np.argsort(bucket_N.astype(np.uint16), kind="stable")  # of 16 bits: a radix sort
        edges = np.searchsorted(bucket_N[order], np.arange(len(self._pieces) + 1))
        (batch,) = gather(table, rows_N[order]).to_batches()
        for bucket, (begin, end) in enumerate(pairwise(edges.tolist())):
            if end > begin:
                self._append(bucket, place, batch.slice(begin, end - begin))

    def _append(self, bucket: int, place: Place, batch: pa.RecordBatch) -> None:
        content = batch.serialize()
        with self._lock:
            offset, self._end = self._end, self._end + content.size
            self._pieces[bucket].append(_Piece(place=place, offset=offset, num_bytes=content.size))
            self.num_rows[bucket] += batch.num_rows
        with _spilling():
            _write(self._descriptor, content, offset)

    def read(self, bucket: int) -> pa.Table:
        """The rows of a bucket, in the order in which the day has them."""
        if self._file is None:
            tables = [table for _, table in sorted(self._held, key=lambda held: held[0])]
            return pa.concat_tables(tables) if tables else self._schema.empty_table()
        pieces = sorted(self._pieces[bucket], key=lambda piece: piece.place)
        with _spilling():
            batches = [self._read(piece) for piece in pieces]
        return pa.Table.from_batches(batches, self._schema)

    def _read(self, piece: _Piece) -> pa.RecordBatch:
        content = os.pread(self._descriptor, piece.num_bytes, piece.offset)
        return pa.ipc.read_record_batch(pa.py_buffer(content), self._schema)

    @property
    def _descriptor(self) -> int:
        assert self._file is not None
        return self._file.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.clear()
        if self._file is not None:
            self._file.close()


@contextmanager
def _spilling() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        # Asked for again, a temporary folder that cannot be written to raises again.
        folder = tempfile.tempdir or os.environ.get("TMPDIR", "/tmp")
        raise InputError(
            f"{folder}: cannot hold the rows of a day ({reason}); free the space or set TMPDIR to a folder that has it"
        ) from error


def _write(descriptor: int, content: pa.Buffer, offset: int) -> None:
    left = memoryview(content)
    while left.nbytes:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written
