"""The lookup seam: ids out, rows back.

Everything above it (loop, semi-synchronous pipeline) knows only `Lookup`; below it lie tables sharded over ranks
(`trainer/embeddings/sharded.py`), TorchRec's sharded collections (`trainer/embeddings/collections.py`) and plain
tables for serving (`PlainTables`).

A lookup has two legs. `Lookup.send` takes ids to the ranks that hold their rows; it reads no row, so it may run any
time ahead. `Lookup.read` takes the rows back as they are now. A backward pass through them is the third leg, which
updates the tables. Each leg is complete when its call returns; who wants them to overlap with anything runs them on a
lane of their own (`trainer/semisync`).

Call sites travel together as the keys of one KeyedJaggedTensor, so that they share one exchange of ids and one of rows.
Shape suffixes: B rows of the batch, N ids of a call site, D width of a table row.
"""

from collections.abc import Mapping
from typing import Any, Protocol

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


class Lookup(Protocol):
    """Tables behind the seam."""

    def send(self, ids: KeyedJaggedTensor) -> Any:
        """Takes ids to the ranks that hold their rows, and returns what `read` wants; collective.

        Args:
            ids: Row numbers, one key a call site.
        """
        ...

    def read(self, sent: Any, *, adapting: bool) -> Rows:
        """Takes the rows back, as they are now; collective.

        Args:
            sent: Of `send`; it is read once.
            adapting: Whether a backward pass through the rows may update the tables; it is collective too. Without it
                the lookup runs outside autograd: no gradient, no gradient exchange, no optimizer state.

        Returns:
            The rows (N, D) float32 of each call site, in the order of its ids.
        """
        ...

    def settle(self) -> None:
        """Ends an update, after its backward pass."""
        ...


def look_up(lookup: Lookup, ids: KeyedJaggedTensor, *, adapting: bool) -> Rows:
    """Both legs of a lookup, one after the other; see `Lookup`."""
    return lookup.read(lookup.send(ids), adapting=adapting)


def num_rows_of(tables: TablesConfig) -> dict[str, int]:
    """Rows of each table by its name."""
    return {USER_TABLE: tables.num_user_rows, PIN_TABLE: tables.num_pin_rows}


def ids_of(batch: Batch, tables: TablesConfig) -> KeyedJaggedTensor:
    """The row numbers that a batch reads, all call sites in one KeyedJaggedTensor."""
    lengths_B = batch.history_lengths_B
    if not len(lengths_B):  # of a step with fewer slates than ranks; a KeyedJaggedTensor wants one row, empty or not
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


class PlainTables:
    """Whole tables in this process, read only: what serving and scoring look up."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights

    def send(self, ids: KeyedJaggedTensor) -> KeyedJaggedTensor:
        """Nothing to send; see `Lookup.send`."""
        return ids

    def read(self, sent: KeyedJaggedTensor, *, adapting: bool) -> Rows:
        """Gathers; see `Lookup.read`."""
        assert not adapting, "plain tables are read only"
        return {
            site: self._weights[table][sent[site].values()] for table, sites in SITES_OF_TABLE.items() for site in sites
        }

    def settle(self) -> None:
        """Nothing was updated; see `Lookup.settle`."""
