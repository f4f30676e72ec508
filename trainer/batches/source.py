"""What the reader reads from: rows in memory, or a window larger than memory.

Rows come in chunks. Rows in memory are one chunk, so their shuffle is over all of them. A window on disk has a chunk
for each of its row groups, of which as many are in memory at once as its buffer holds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trainer.batches.slates import Ints, Sizes

if TYPE_CHECKING:
    from trainer.batches.columns import Columns

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


def go_on() -> None:
    """Stops no reading."""


class Source(Protocol):
    """Rows whose slates lie side by side, in chunks of whole slates."""

    @property
    def num_rows(self) -> int:
        """Rows of all chunks."""
        ...

    @property
    def buffer_rows(self) -> int:
        """Rows that are to be in memory at once; a chunk alone may be more."""
        ...

    @property
    def slate_sizes(self) -> Sequence[Sizes]:
        """Rows of the slates of each chunk, in the order of the rows."""
        ...

    def count_pins(self) -> "PinCounts":
        """How often each pin is a candidate."""
        ...

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """One of the columns, part by part in the order of the rows; read anew where it is not in memory.

        Args:
            name: Of an attribute of `trainer.batches.columns.Columns` that has an entry a row.
        """
        ...

    def load(self, chunks: Ints, wanted: Bools, check: Callable[[], None] = go_on) -> "Loaded":
        """Brings slates of some chunks into memory.

        Args:
            chunks: Which, ascending.
            wanted: Which of their slates; others may be left out.
            check: Called now and then; what it raises ends the reading.

        Raises:
            InputError: A file of the window cannot be read any more.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Slates in memory.

    Attributes:
        columns: Their rows.
        starts: Where in them each slate of the chunks begins; of those that were left out it says nothing.
    """

    columns: "Columns"
    starts: Ints


@dataclass(frozen=True, kw_only=True)
class PinCounts:
    """How often each pin is a candidate.

    Attributes:
        pins: Distinct, ascending.
        counts: Rows of each.
    """

    pins: Ints
    counts: Ints

    @classmethod
    def of(cls, pin_id: Ints) -> "PinCounts":
        """Counts the pins of rows."""
        pins, counts = np.unique(pin_id, return_counts=True)
        return cls(pins=pins, counts=counts)

    @classmethod
    def sum_of(cls, parts: Sequence["PinCounts"]) -> "PinCounts":
        """The counts of some parts together."""
        pins, which = np.unique(np.concatenate([part.pins for part in parts]), return_inverse=True)
        counts = np.zeros(len(pins), np.int64)
        np.add.at(counts, which, np.concatenate([part.counts for part in parts]))
        return cls(pins=pins, counts=counts)

    def log_share(self, pin_id: Ints) -> Floats:
        """The log of each pin's share of the rows, for pins that were counted."""
        found: Floats = self._log_shares[self._index.get_indexer(pin_id)]
        return found

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(self.pins)  # makes a hash table once

    @cached_property
    def _log_shares(self) -> Floats:
        shares: NDArray[np.float64] = self.counts / self.counts.sum()
        return np.log(shares).astype(np.float32)


def whole(source: Source, name: str) -> NDArray[Any]:
    """One of the columns, all rows of it; see `Source.parts`."""
    parts = list(source.parts(name))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
