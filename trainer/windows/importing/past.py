"""Histories that a source holds already, in the order and the length of the contract.

Shape legend: N rows of a chunk, L entries of all their histories.
"""

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trainer.windows.hashing import hash_ids
from trainer.windows.importing.casting import as_integers, as_text, kind_of
from trainer.windows.importing.expressions import Expression
from trainer.windows.importing.fields import Fields
from trainer.windows.importing.mapping import PastConfig

Ints = NDArray[np.int64]

_KEY = "history.from_column"
_MAX_ACTION = 127


def histories_of(
    fields: Fields,
    config: PastConfig,
    pins: Expression,
    actions: Expression | None,
    kind: Literal["integer", "text"],
    length: int,
) -> tuple[pa.ListArray, pa.ListArray]:
    """Pins, list<int64> (N,), and actions, list<int8> (N,), most recent first; a null is an empty history.

    Args:
        fields: The chunk; takes what is wrong.
        config: How the source holds them.
        pins: Its column of pins.
        actions: Its column of actions.
        kind: Of a pin's id.
        length: Most entries to keep.
    """
    lengths, entries = _entries(fields, f"{_KEY}.value", pins, config.separator)
    ids = hash_ids(as_text(entries)) if kind == "text" else _integers(fields, f"{_KEY}.value", entries, lengths)
    codes = np.full(len(entries), config.action, np.int64)
    if actions is not None:
        num_codes, code_entries = _entries(fields, f"{_KEY}.actions", actions, config.separator)
        found = _integers(fields, f"{_KEY}.actions", code_entries, num_codes, _MAX_ACTION)
        differs = num_codes != lengths
        fields.fault(f"{_KEY}.actions", differs, "has another length than the pins")
        codes = np.asarray(found) if not differs.any() else codes
    taken, kept = _most_recent(lengths, length, config.oldest_first)
    offsets = pa.array(np.concatenate([[0], np.cumsum(kept)]), pa.int32())
    return (
        pa.ListArray.from_arrays(offsets, pa.array(np.asarray(ids)[taken], pa.int64())),
        pa.ListArray.from_arrays(offsets, pa.array(codes[taken].astype(np.int8))),
    )


def _entries(fields: Fields, key: str, expression: Expression, separator: str | None) -> tuple[Ints, pa.Array]:
    """Number of entries a row, int64 (N,), and all of them (L,)."""
    values = fields.raw(key, expression)
    kind = kind_of(values.type)
    if kind == "text" and separator is not None:
        trimmed = pc.utf8_trim_whitespace(values)
        is_empty = pc.fill_null(pc.equal(trimmed, ""), True)
        values = pc.split_pattern(pc.if_else(is_empty, pa.scalar(None, pa.string()), trimmed), separator)
    elif kind not in ("list", "nothing"):
        hint = "; name its separator" if kind == "text" else ""
        fields.fault(key, np.ones(fields.num_rows, np.bool_), f"is {kind}, no list{hint}")
    if kind_of(values.type) != "list":
        return np.zeros(fields.num_rows, np.int64), pa.array([], pa.string())
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64()).to_numpy(), np.int64)
    return lengths, pc.list_flatten(values)


def _integers(fields: Fields, key: str, entries: pa.Array, lengths: Ints, largest: int = 2**63 - 1) -> Ints:
    """The entries as integers of 0 to `largest`; rows with another one are at fault."""
    if kind_of(entries.type) not in ("number", "text", "nothing"):
        fields.fault(key, lengths > 0, f"has entries that are {kind_of(entries.type)}")
        return np.zeros(len(entries), np.int64)
    found = np.asarray(pc.fill_null(as_integers(entries).values, -1).to_numpy(), np.int64)
    is_bad = (found < 0) | (found > largest)
    row = np.repeat(np.arange(len(lengths)), lengths)
    fields.fault(key, np.isin(np.arange(len(lengths)), row[is_bad]), "has an entry that is no integer of 0 or more")
    return np.where(is_bad, 0, found)


def _most_recent(lengths: Ints, length: int, oldest_first: bool) -> tuple[Ints, Ints]:
    """Indices of the entries to keep, the most recent of each row first, and how many those are, (N,)."""
    kept = np.minimum(lengths, length)
    ends = np.cumsum(lengths)
    back = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
    if oldest_first:
        return np.repeat(ends, kept) - 1 - back, kept
    return np.repeat(ends - lengths, kept) + back, kept
