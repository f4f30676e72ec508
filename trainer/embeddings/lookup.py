"""The lookup seam: ids out, rows back.

Everything above it (loop, semi-synchronous pipeline) knows only `Lookup`; below it lie tables sharded over ranks
(`trainer/embeddings/sharded.py`), TorchRec's sharded collections (`trainer/embeddings/collections.py`) and plain
tables for serving (`PlainTables`).

A lookup has two legs. `Lookup.send` takes ids to the ranks that hold their rows; it reads no row, so it may run any
time ahead. `Lookup.read` takes the rows back as they are now. A backward pass through them is the third leg, which
updates the tables. Each leg is complete when its call returns; who wants them to overlap with anything runs them on a
lane of their own (`trainer/semisync`).

Call sites travel together, so that they share one exchange of ids and one of rows. Which ids belong to which sample is
the model's business: our tables give one row an id, so no lengths travel.
Shape suffixes: B rows of the batch, N ids of a call site, D width of a table row.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from trainer.batches.batch import Batch
from trainer.embeddings.hashing import hash_rows
from trainer.recipe import TablesConfig

USER_TABLE, PIN_TABLE = "user", "pin"
USER, CANDIDATE, HISTORY = "user", "candidate", "history"
SITES_OF_TABLE = {USER_TABLE: (USER,), PIN_TABLE: (CANDIDATE, HISTORY)}
TABLE_OF_SITE = {site: table for table, sites in SITES_OF_TABLE.items() for site in sites}

Ids = Mapping[str, Tensor]
"""Row numbers (N,) int64 by call site."""
Rows = Mapping[str, Tensor]
"""Rows (N, D) float32 by call site, in the order of its ids."""


class Lookup(Protocol):
    """Tables behind the seam."""

    def send(self, ids: Any) -> Any:
        """Takes ids to the ranks that hold their rows, and returns what `read` wants; collective.

        Args:
            ids: `Ids`; for TorchRec's collections a KeyedJaggedTensor, one key a call site.
        """
        ...

    def read(self, sent: Any, *, adapting: bool) -> Rows:
        """Takes the rows back, as they are now; collective.

        Args:
            sent: Of `send`; it is read once.
            adapting: Whether a backward pass through the rows may update the tables; it is collective too. Without it
                the lookup runs outside autograd: no gradient, no gradient exchange, no optimizer state.

        Returns:
            The rows of each call site.
        """
        ...

    def settle(self) -> None:
        """Ends an update, after its backward pass."""
        ...


def look_up(lookup: Lookup, ids: Any, *, adapting: bool) -> Rows:
    """Both legs of a lookup, one after the other; see `Lookup`."""
    return lookup.read(lookup.send(ids), adapting=adapting)


def num_rows_of(tables: TablesConfig) -> dict[str, int]:
    """Rows of each table by its name."""
    return {USER_TABLE: tables.num_user_rows, PIN_TABLE: tables.num_pin_rows}


def ids_of(batch: Batch, tables: TablesConfig) -> Ids:
    """The row numbers that a batch reads."""
    pins = torch.cat([batch.pin_ids_B, batch.history_ids_N])
    rows = hash_rows(pins, num_rows=tables.num_pin_rows, seed=tables.hash_seed)
    return {
        USER: hash_rows(batch.user_ids_B, num_rows=tables.num_user_rows, seed=tables.hash_seed),
        CANDIDATE: rows[: len(batch.pin_ids_B)],
        HISTORY: rows[len(batch.pin_ids_B) :],
    }


class PlainTables:
    """Whole tables in this process, read only: what serving and scoring look up."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights

    def send(self, ids: Ids) -> Ids:
        """Nothing to send; see `Lookup.send`."""
        return ids

    def read(self, sent: Ids, *, adapting: bool) -> Rows:
        """Gathers; see `Lookup.read`."""
        assert not adapting, "plain tables are read only"
        return {site: self._weights[TABLE_OF_SITE[site]][rows_N] for site, rows_N in sent.items()}

    def settle(self) -> None:
        """Nothing was updated; see `Lookup.settle`."""
