"""Slates as runs of rows."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Sizes = NDArray[np.int32]


def slate_starts(request_id: Ints) -> Ints:
    """Where the runs of equal ``request_id`` begin, and the end."""
    return np.append(np.flatnonzero(np.diff(request_id, prepend=request_id[:1] - 1)), len(request_id))


def places(starts: Ints, sizes: Ints) -> Ints:
    """The places of some runs, one run after the other: ``starts[0]``, ``starts[0] + 1``, ..., ``starts[1]``, ..."""
    total = int(sizes.sum())
    return np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(total)
