"""Which ids a day holds, in fixed memory: the ids of smallest hash.

The k smallest hashes estimate how many ids there are (Bar-Yossef et al., RANDOM 2002; Beyer et al., SIGMOD 2007), and
they are a uniform sample of the ids. The hash is the same every day, so whether an id of the sample came on another
day can be told exactly wherever that day's sample reaches as far. With no more than k ids, nothing is estimated.
"""

from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.windows.mixing import mix64
from trainer.windows.quality.packing import packed, unpacked

_HASHES = 2.0**64


def sorted_union(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The distinct values of two ascending arrays, ascending; far faster than ``np.union1d``, which hashes."""
    values = np.concatenate([first, second])
    values.sort(kind="stable")  # merges what is in order already
    is_first = np.empty(len(values), np.bool_)
    is_first[:1] = True
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    return values[is_first]


class DistinctIds:
    """A sample of the distinct ids of a stream.

    Args:
        size: Ids that are kept, K.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.hashes_K: NDArray[np.uint64] = np.empty(0, np.uint64)

    def add(self, ids: NDArray[np.int64]) -> None:
        """Takes ids in, repeated or not."""
        if self.is_sample:
            hashes = mix64(ids.astype(np.uint64))
            self._take(np.sort(hashes[hashes <= self.hashes_K[-1]]))
        else:
            self._take(np.sort(mix64(pa.array(ids).unique().to_numpy().astype(np.uint64))))

    def merge(self, other: Self) -> None:
        """Takes in what `other`, of the same size, has seen."""
        self._take(other.hashes_K)

    def _take(self, hashes: NDArray[np.uint64]) -> None:
        self.hashes_K = sorted_union(self.hashes_K, hashes)[: self.size]

    @property
    def is_sample(self) -> bool:
        """Whether some ids may have been left out."""
        return len(self.hashes_K) == self.size

    @property
    def reach(self) -> np.uint64:
        """The greatest hash up to which every id is kept."""
        return self.hashes_K[-1] if self.is_sample else np.uint64(2**64 - 1)

    @property
    def num_distinct(self) -> int:
        """How many ids there were; an estimate, with a relative error of about 1 / sqrt(K), once ids are left out."""
        if not self.is_sample:
            return len(self.hashes_K)
        return round((self.size - 1) / ((float(self.hashes_K[-1]) + 1.0) / _HASHES))

    def to_json(self) -> dict[str, Any]:
        """The sample as plain JSON values."""
        return {"size": self.size, "hashes": packed(self.hashes_K)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Reads what `to_json` wrote."""
        ids = cls(content["size"])
        ids.hashes_K = unpacked(content["hashes"]).view(np.uint64)
        return ids
