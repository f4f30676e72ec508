"""Rows of a table in another order: one copy of memory a row and column, lists included.

Arrow gathers a list element by element. Lists of numbers are the same bytes as strings of bytes, so here they are
gathered as those.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.windows.arrays import one_array

_NOTHING = pa.py_buffer(b"\0")
"""Of lists that are all empty: Arrow wants a buffer at some address."""

_LARGE = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}


def gather(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """The rows of the given numbers, in that order.

    Args:
        table: Columns; lists with nulls in them are gathered element by element.
        rows: Numbers of rows, from 0.
    """
    indices = pa.array(rows)
    columns = [_gather(table[name], indices) for name in table.column_names]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _gather(column: pa.ChunkedArray, indices: pa.Array) -> pa.Array | pa.ChunkedArray:
    kind = column.type
    if kind in _LARGE:
        # Only the large types hold more than 2 GiB of images in one array.
        return one_array(column.cast(_LARGE[kind])).take(indices).cast(kind)
    values = one_array(column)
    if pa.types.is_list(kind) and values.null_count == 0 and values.values.null_count == 0:
        return _as_lists(_as_bytes(values).take(indices), kind)
    return values.take(indices)


def _as_bytes(lists: pa.ListArray) -> pa.Array:
    """The same bytes: a string for each list; nothing is copied but where each begins."""
    width = lists.type.value_type.bit_width // 8
    values = lists.values
    offsets = lists.offsets.to_numpy().astype(np.int64) * width
    data = values.buffers()[1]
    data = _NOTHING if data is None or not data.size else data.slice(values.offset * width)
    return pa.Array.from_buffers(pa.large_binary(), len(lists), [None, pa.py_buffer(offsets), data])


def _as_lists(strings: pa.Array, kind: pa.ListType) -> pa.Array:
    width = kind.value_type.bit_width // 8
    _, offset_bytes, data = strings.buffers()
    offsets = np.frombuffer(offset_bytes, np.int64)[strings.offset : strings.offset + len(strings) + 1] // width
    data = _NOTHING if data is None else data
    values = pa.Array.from_buffers(kind.value_type, int(offsets[-1]), [None, data])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, type=kind)
