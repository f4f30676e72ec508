"""The lookup seam: ids out, rows back.

Everything above it (loop, pipelining) knows only `Lookup` and `Pending`; below it lie TorchRec's sharded collections
(`trainer/embeddings/sharded.py`) for training and a plain table (`PlainTables`) for serving.

Call sites travel together as the keys of one KeyedJaggedTensor, so that they share one exchange of ids and one of rows.
Shape suffixes: B rows of the batch, N ids of a call site, D width of a table row.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor
from torchrec import KeyedJaggedTensor

from trainer.batches.batch import Batch
from trainer.embeddings.hashing import hash_rows
from trainer.recipe import TablesConfig

USER_TABLE, PIN_TABLE = "user", "pin"
USER, CANDIDATE, HISTORY = "user", "candidate", "history"
SITES_OF_TABLE = {USER_TABLE: (USER,), PIN_TABLE: (CANDIDATE, HISTORY)}

Rows = Mapping[str, Tensor]


class Pending(Protocol):
    """A lookup on its way."""

    def wait(self) -> Rows:
        """The rows (N, D) float32 of each call site, in the order of its ids."""
        ...


class Lookup(Protocol):
    """Starts lookups; the caller waits when it needs the rows."""

    def start(self, ids: KeyedJaggedTensor, *, adapting: bool) -> Pending:
        """Sends the ids on their way.

        Args:
            ids: Row numbers, one key a call site.
            adapting: Whether a backward pass through the rows may update the tables. Without it the lookup runs outside
                autograd: no gradient, no gradient exchange, no optimizer state.
        """
        ...

    def settle(self) -> None:
        """Ends a step, after its backward pass and before the next lookup starts."""
        ...


def num_rows_of(tables: TablesConfig) -> dict[str, int]:
    """Rows of each table by its name."""
    return {USER_TABLE: tables.num_user_rows, PIN_TABLE: tables.num_pin_rows}


def ids_of(batch: Batch, tables: TablesConfig) -> KeyedJaggedTensor:
    """The row numbers that a batch reads, all call sites in one KeyedJaggedTensor."""
    lengths_B = batch.history_lengths_B
    if not len(lengths_B):  # of a step with fewer slates than ranks; TorchRec wants one row, which may be empty
        return KeyedJaggedTensor(
            keys=[USER, CANDIDATE, HISTORY], values=batch.user_ids_B, lengths=lengths_B.new_zeros(3, dtype=torch.int32)
        )
    ones_B = torch.ones_like(lengths_B)
    pins = torch.cat([batch.pin_ids_B, batch.history_ids_N])
    return KeyedJaggedTensor(
        keys=[USER, CANDIDATE, HISTORY],
        values=torch.cat(
            [
                hash_rows(batch.user_ids_B, num_rows=tables.num_user_rows, seed=tables.hash_seed),
                hash_rows(pins, num_rows=tables.num_pin_rows, seed=tables.hash_seed),
            ]
        ),
        lengths=torch.cat([ones_B, ones_B, lengths_B]).to(torch.int32),
    )


class _Ready:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def wait(self) -> Rows:
        return self._rows


class PlainTables:
    """Whole tables in this process, read only: what serving and scoring look up."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights

    def start(self, ids: KeyedJaggedTensor, *, adapting: bool) -> Pending:
        """Gathers at once; see `Lookup.start`."""
        assert not adapting, "plain tables are read only"
        rows = {
            site: self._weights[table][ids[site].values()] for table, sites in SITES_OF_TABLE.items() for site in sites
        }
        return _Ready(rows)

    def settle(self) -> None:
        """Nothing was updated; see `Lookup.settle`."""
