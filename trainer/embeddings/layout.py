"""Where rows lie: blocks of every table on each rank, side by side in one tensor of slots.

Shape suffixes: N ids, R rows of a table, S slots of a rank.
"""

from collections.abc import Mapping

from torch import Tensor


class Layout:
    """Splits tables by rows: rank w holds the w-th block of each table, one table after the other.

    The *address* of a row is its rank times the slots of a rank, plus its slot there. Sorted addresses are grouped by
    rank, whatever tables they belong to, so ids of all tables travel together.

    Args:
        num_rows: R of each table.
        num_ranks: Ranks that share them.

    Attributes:
        num_slots: S; alike on all ranks, so a table's last block may end in slots that no row uses.
    """

    def __init__(self, num_rows: Mapping[str, int], *, num_ranks: int) -> None:
        self._num_rows, self._num_ranks = dict(num_rows), num_ranks
        self._blocks = {table: -(-rows // num_ranks) for table, rows in num_rows.items()}
        self._first: dict[str, int] = {}
        self.num_slots = 0
        for table, block in self._blocks.items():
            self._first[table] = self.num_slots
            self.num_slots += block

    def addresses(self, table: str, rows_N: Tensor) -> Tensor:
        """Addresses (N,) of a table's rows (N,), int64."""
        first, block = self._first[table], self._blocks[table]
        if self._num_ranks == 1:
            return rows_N + first
        return rows_N + rows_N.div(block, rounding_mode="floor") * (self.num_slots - block) + first

    def slots_of(self, table: str) -> slice:
        """The slots of a table, used or not; alike on all ranks."""
        return slice(self._first[table], self._first[table] + self._blocks[table])

    def rows_of(self, table: str, rank: int) -> slice:
        """The rows of a table that a rank holds; they fill its first slots of the table, in order."""
        block, num_rows = self._blocks[table], self._num_rows[table]
        return slice(min(rank * block, num_rows), min((rank + 1) * block, num_rows))
