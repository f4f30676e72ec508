"""Whole numbers as short text, for JSON."""

import base64
import zlib

import numpy as np
from numpy.typing import NDArray


def packed(numbers: NDArray[np.int64] | NDArray[np.uint64]) -> str:
    """The numbers as Base64 of zlib of their 8 bytes each, little-endian."""
    return base64.b64encode(zlib.compress(numbers.astype(numbers.dtype.newbyteorder("<")).tobytes(), 1)).decode()


def unpacked(text: str) -> NDArray[np.int64]:
    """The numbers that `packed` was given, as int64; view them as uint64 where they were."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8").astype(np.int64)
