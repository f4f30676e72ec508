"""A bijection of 64-bit words that scatters them: orders slates, spreads them over shards, samples ids."""

import numpy as np
from numpy.typing import NDArray


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014): one-to-one, and every bit in moves every bit out."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
