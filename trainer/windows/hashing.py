"""Ids that are text, as stable 64-bit numbers: the same string is the same id on every day, machine and version.

The function, for whoever must agree with it (a service that looks up what was trained here)::

    word  = mix64(seed XOR number of bytes)
    for each 8 bytes of the string in UTF-8, little-endian, the last padded with zero bytes:
        word = mix64(word XOR those 8 bytes)
    id    = word >> 1

with `trainer.windows.mixing.mix64`, and the seed 0 for ids. An id has 63 bits: among n distinct strings, n^2 / 2^64
pairs are expected to share one: one such pair in 180,000 days of 10 million strings each.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trainer.windows.arrays import one_array
from trainer.windows.mixing import mix64

_WORD_BYTES = 8


def hash_ids(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Ids of text as ids of numbers.

    Args:
        column: Strings of any encoding, or lists of strings.

    Returns:
        int64 that are not negative, or lists of them; what is null stays null.
    """
    if isinstance(column, pa.ChunkedArray):
        column = one_array(column)
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        column = column.cast(pa.list_(kind.value_type))
    if pa.types.is_list(column.type):
        ids = hash_ids(column.flatten())
        offsets = _offsets_of_flattened(column)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ids, mask=_mask(column))
    if pa.types.is_dictionary(kind):
        return hash_ids(column.dictionary).take(column.indices)
    return pa.array((hash_strings(column) >> np.uint64(1)).astype(np.int64), mask=_nulls(column))


def hash_strings(strings: pa.Array, seed: int = 0) -> NDArray[np.uint64]:
    """All 64 bits of the hash of each string; of a null, that of no bytes.

    Args:
        strings: ``string``, ``large_string`` or ``string_view``.
        seed: Which of the hash functions.
    """
    text = pc.fill_null(strings.cast(pa.large_string()), "").cast(pa.large_binary())
    _, offset_bytes, data = text.buffers()
    offsets = np.frombuffer(offset_bytes, np.int64)[text.offset : text.offset + len(text) + 1]
    lengths = np.diff(offsets)
    used = b"" if data is None else memoryview(data)[: offsets[-1]]
    words = _words_at_every_byte(np.frombuffer(used, np.uint8))
    hashes = mix64(np.uint64(seed) ^ lengths.astype(np.uint64))
    longest = int(lengths.max(initial=0))
    for begin in range(0, longest, _WORD_BYTES):
        rows = np.flatnonzero(lengths > begin)
        word = words[offsets[rows] + begin]
        num_spare = np.maximum(_WORD_BYTES - (lengths[rows] - begin), 0).astype(np.uint64)
        word &= np.uint64(2**64 - 1) >> (num_spare * np.uint64(_WORD_BYTES))
        hashes[rows] = mix64(hashes[rows] ^ word)
    return hashes


def _words_at_every_byte(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """A view: the 8 bytes from every place on, as one word."""
    padded = np.concatenate([data, np.zeros(_WORD_BYTES, np.uint8)])
    return np.ndarray((len(data) + 1,), np.dtype("<u8"), buffer=padded, strides=(1,))


def _offsets_of_flattened(lists: pa.ListArray) -> NDArray[np.int64]:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return np.concatenate([[0], np.cumsum(lengths)])


def _nulls(column: pa.Array) -> NDArray[np.bool_] | None:
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def _mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None
