"""Which rows of a day stay, and in which order; told from five columns, for a range of the order at a time.

Shape suffixes: N rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.windows.mixing import mix64

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_POSITION_BITS = 15
"""A position is an int16 that is not negative."""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """What decides over a row.

    Attributes:
        request_N: Its slate.
        pin_N: Its pin.
        ts_N: When it was, in microseconds.
        position_N: Its place in the slate, from 0.
        is_positive_N: Whether any label is true.
    """

    request_N: Ints
    pin_N: Ints
    ts_N: Ints
    position_N: NDArray[np.int16]
    is_positive_N: NDArray[np.bool_]

    @classmethod
    def of(cls, table: pa.Table, labels: tuple[str, ...]) -> "Keys":
        """The keys of rows in the types of the contract, without nulls."""
        return cls(
            request_N=table["request_id"].to_numpy(),
            pin_N=table["pin_id"].to_numpy(),
            ts_N=table["ts"].cast(pa.int64()).to_numpy(),
            position_N=table["position"].to_numpy(),
            is_positive_N=np.logical_or.reduce([table[label].to_numpy() for label in labels]),
        )


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What stays of some rows.

    Attributes:
        rows_N: Numbers of the newest row of each slate and pin, in the order of the prepared day.
        is_sampled_N: Which of those stay.
        num_slates: Slates among the rows that stay.
    """

    rows_N: Ints
    is_sampled_N: NDArray[np.bool_]
    num_slates: int


def slate_words(request_N: Ints, seed: int) -> Words:
    """The word that a slate is ordered and spread by.

    One-to-one, so slates never interleave, and the order of two depends on no third: any range of these words, a shard
    of a day or a day with late rows, keeps it.
    """
    return mix64(request_N.astype(np.uint64) + mix64(np.array([seed]).astype(np.uint64)))


def select(keys: Keys, seed: int, negative_rate: float) -> Selection:
    """Drops duplicates, samples negatives and orders what stays.

    Of rows of one slate and pin the newest stays, of equally new ones the last. A row without a positive label stays
    with the probability `negative_rate`, by a hash of slate and pin. Slates come in the order of their words, their
    rows by position, then pin.

    Args:
        keys: Of the rows, in the order in which they were found.
        seed: Of the order and the sampling.
        negative_rate: In (0, 1].
    """
    slate_N = slate_words(keys.request_N, seed)
    # As good as independent of the slate's word: another round of the hash lies between.
    pair_N = mix64(slate_N + keys.pin_N.astype(np.uint64))
    newest_N = np.flatnonzero(_is_newest(keys, pair_N))
    rows_N = newest_N[_order(slate_N[newest_N], keys.position_N[newest_N], keys.pin_N[newest_N])]
    is_sampled_N = np.ones(len(rows_N), np.bool_)
    if negative_rate < 1:
        is_sampled_N = keys.is_positive_N[rows_N] | (pair_N[rows_N] < np.uint64(int(negative_rate * 2**64)))
    return Selection(rows_N=rows_N, is_sampled_N=is_sampled_N, num_slates=_num_runs(slate_N[rows_N[is_sampled_N]]))


def _is_newest(keys: Keys, pair_N: Words) -> NDArray[np.bool_]:
    """Whether no newer row has a row's slate and pin.

    Only rows whose pair's hash is there twice are compared: most days have few.
    """
    is_newest_N = np.ones(len(pair_N), np.bool_)
    sorted_N = np.sort(pair_N)
    repeated = np.unique(sorted_N[1:][sorted_N[1:] == sorted_N[:-1]])
    if not len(repeated):
        return is_newest_N
    places = np.minimum(np.searchsorted(repeated, pair_N), len(repeated) - 1)
    suspects = np.flatnonzero(repeated[places] == pair_N)
    request, pin, ts = (values[suspects] for values in (keys.request_N, keys.pin_N, keys.ts_N))
    # lexsort is stable: rows of one slate, pin and time stay in the order in which they were found.
    order = np.lexsort((ts, pin, request))
    is_same_as_next = (request[order[1:]] == request[order[:-1]]) & (pin[order[1:]] == pin[order[:-1]])
    is_newest_N[suspects[order[:-1][is_same_as_next]]] = False
    return is_newest_N


def _order(slate_N: Words, position_N: NDArray[np.int16], pin_N: Ints) -> Ints:
    """By slate, position and pin: one sort by words of the first two, ties mended after."""
    if not len(slate_N):
        return np.empty(0, np.int64)
    # What the words of these rows have in common tells nothing; below it, room for the position.
    common = int(slate_N.min() ^ slate_N.max())
    shift = max(common.bit_length() + _POSITION_BITS - 64, 0)
    low = (slate_N - slate_N.min()) if common else np.zeros_like(slate_N)
    key_N = ((low >> np.uint64(shift)) << np.uint64(_POSITION_BITS)) | position_N.astype(np.uint64)
    order = np.argsort(key_N).astype(np.int64, copy=False)
    sorted_N = key_N[order]
    is_tie = sorted_N[1:] == sorted_N[:-1]
    if is_tie.any():
        tied = np.flatnonzero(np.append(is_tie, False) | np.insert(is_tie, 0, False))
        rows = order[tied]
        order[tied] = rows[np.lexsort((pin_N[rows], slate_N[rows], key_N[rows]))]
    in_order_N = slate_N[order]
    if (in_order_N[1:] < in_order_N[:-1]).any():  # two slates share all bits that the key has of them
        return np.lexsort((pin_N, position_N, slate_N)).astype(np.int64, copy=False)
    return order


def _num_runs(values_N: Words) -> int:
    return int(np.count_nonzero(values_N[1:] != values_N[:-1])) + 1 if len(values_N) else 0
