"""Columns of Arrow tables as single arrays."""

import pyarrow as pa


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; one that is a single chunk is not copied, as ``combine_chunks`` would."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
