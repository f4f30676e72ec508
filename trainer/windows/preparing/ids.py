"""How often two ids are taken for one: as text hashed to the same number, or as numbers sharing a row of a table.

Both are counted exactly on a sample of fixed size: all ids whose row has a hash below a threshold, which falls as ids
come (Flajolet, Computing 1990). Ids that collide share their row, so they are in the sample together or not at all.
Shape suffixes: N ids.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.recipe import TablesConfig
from trainer.windows.mixing import mix64

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

SAMPLE_IDS = 65_536
_GOLDEN = 0x9E3779B97F4A7C15


def table_rows(ids_N: Ints, num_rows: int, seed: int) -> Ints:
    """The row of a table that each id reads: `trainer.embeddings.hashing.hash_rows`, without torch."""
    offset = np.uint64(_GOLDEN * seed % 2**64)
    return ((mix64(ids_N.astype(np.uint64) + offset) >> np.uint64(1)) % np.uint64(num_rows)).astype(np.int64)


class IdSample:
    """Ids of one kind.

    Args:
        num_rows: Rows of their table.
        seed: Of the table's hash.
        size: Ids that are kept, at most.
    """

    def __init__(self, *, num_rows: int, seed: int, size: int = SAMPLE_IDS) -> None:
        self._num_rows, self._seed, self._size = num_rows, seed, size
        self._level = 0
        self._ids_N: Ints = np.empty(0, np.int64)
        self._checks_N: Words = np.empty(0, np.uint64)
        self._pending: list[tuple[Ints, Words]] = []

    def add(self, ids_N: Ints, checks_N: Words | None = None) -> None:
        """Takes ids in, repeated or not.

        Args:
            ids_N: Not negative.
            checks_N: Of ids that were text another hash of the text, to tell different ones of one number apart.
        """
        checks_N = np.zeros(len(ids_N), np.uint64) if checks_N is None else checks_N
        is_ours_N = self._is_ours(ids_N)
        self._pending.append((ids_N[is_ours_N], checks_N[is_ours_N]))
        if sum(len(ids) for ids, _ in self._pending) > self._size:
            self._settle()

    def merge(self, other: "IdSample") -> None:
        """Takes in what `other`, of the same table, has seen."""
        other._settle()
        self._level = max(self._level, other._level)
        self._pending.append((other._ids_N, other._checks_N))
        self._settle()

    def _settle(self) -> None:
        """Takes in what is pending, each id once, and lowers the threshold until the sample fits."""
        ids_N = np.concatenate([self._ids_N, *(ids for ids, _ in self._pending)])
        checks_N = np.concatenate([self._checks_N, *(checks for _, checks in self._pending)])
        self._pending.clear()
        if checks_N.any():
            order = np.lexsort((checks_N, ids_N))
            ids_N, checks_N = ids_N[order], checks_N[order]
        else:
            ids_N.sort()
        is_first_N = np.ones(len(ids_N), np.bool_)
        is_first_N[1:] = (ids_N[1:] != ids_N[:-1]) | (checks_N[1:] != checks_N[:-1])
        self._ids_N, self._checks_N = ids_N[is_first_N], checks_N[is_first_N]
        self._keep_ours()
        while len(self._ids_N) > self._size and len(np.unique(self._rows(self._ids_N))) > 1:
            self._level += 1
            self._keep_ours()

    def _keep_ours(self) -> None:
        is_ours_N = self._is_ours(self._ids_N)
        self._ids_N, self._checks_N = self._ids_N[is_ours_N], self._checks_N[is_ours_N]

    def _rows(self, ids_N: Ints) -> Ints:
        return table_rows(ids_N, self._num_rows, self._seed)

    def _is_ours(self, ids_N: Ints) -> NDArray[np.bool_]:
        if not self._level:
            return np.ones(len(ids_N), np.bool_)
        rows_N = mix64(self._rows(ids_N).astype(np.uint64))
        return rows_N < np.uint64(2 ** (64 - self._level))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values.

        Returns:
            ``num_distinct`` ids, estimated unless ``sampled_share`` is 1; ``text_collisions``, the share of them that
            another text shares; ``table_rows``, and ``row_collisions``, the share of ids that another id shares its row
            with.
        """
        self._settle()
        ids, num_texts = np.unique(self._ids_N, return_counts=True)
        rows, places = np.unique(self._rows(ids), return_inverse=True)
        num_ids_of_row = np.bincount(places, minlength=len(rows))
        num_sharing = int((num_ids_of_row[places] > 1).sum())
        return {
            "num_distinct": len(ids) << self._level,
            "sampled_share": 0.5**self._level,
            "text_collisions": _share(int((num_texts > 1).sum()), len(ids)),
            "table_rows": self._num_rows,
            "row_collisions": _share(num_sharing, len(ids)),
        }


class IdSamples:
    """Users and candidates; ids in histories are not sampled: they were candidates once.

    Args:
        tables: Sizes of the tables, and their hash.
    """

    def __init__(self, tables: TablesConfig) -> None:
        sizes = {"user_id": tables.num_user_rows, "pin_id": tables.num_pin_rows}
        self.of_column = {
            column: IdSample(num_rows=num_rows, seed=tables.hash_seed) for column, num_rows in sizes.items()
        }

    def merge(self, other: "IdSamples") -> None:
        """Takes in what `other`, of the same tables, has seen."""
        for column, sample in self.of_column.items():
            sample.merge(other.of_column[column])

    def to_json(self) -> dict[str, Any]:
        """What `IdSample.to_json` says, by column."""
        return {column: sample.to_json() for column, sample in self.of_column.items()}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
