"""Slices of held-out rows: by how often the window showed their pin or their user, and by new or old pin.

What a window has shown often, a table knows well; a row that it never showed is read as the backbone left it. So an arm
that learns labels by heart should show it where ids are rare, and an arm that adapts too little where pins are new.

Shape legend: R held-out rows, N impressions of the window.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trainer.evaluation.metrics import Ints

_FIRST_COUNTS = (0, 1, 8, 64)


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Some of the held-out rows.

    Attributes:
        dimension: What rows are told apart by: ``pin_impressions``, ``user_impressions`` or ``pin_age``.
        name: Which of them, such as ``8-63`` or ``new``.
        rows_R: Whether each row belongs to it, bool [R].
    """

    dimension: str
    name: str
    rows_R: NDArray[np.bool_]


def slices_of(window: Mapping[str, Ints], heldout: pd.DataFrame) -> list[Slice]:
    """The slices of a held-out day that hold rows; those of one dimension share no row and leave none out.

    Args:
        window: Users and pins of the window's impressions: int64 [N] of ``user_id`` and of ``pin_id``.
        heldout: One row an impression, with ``user_id`` and ``pin_id``.
    """
    of_pin = count_ids(window["pin_id"], heldout["pin_id"].to_numpy())
    of_user = count_ids(window["user_id"], heldout["user_id"].to_numpy())
    slices = [
        *_by_frequency("pin_impressions", of_pin),
        *_by_frequency("user_impressions", of_user),
        Slice(dimension="pin_age", name="new", rows_R=of_pin == 0),
        Slice(dimension="pin_age", name="old", rows_R=of_pin > 0),
    ]
    return [slice_ for slice_ in slices if slice_.rows_R.any()]


def count_ids(window_ids_N: Ints, ids_R: Ints) -> Ints:
    """How often the window shows each id, int64 [R]."""
    known, counts = np.unique(window_ids_N, return_counts=True)
    if not len(known):
        return np.zeros(len(ids_R), dtype=np.int64)
    places = np.minimum(np.searchsorted(known, ids_R), len(known) - 1)
    found: Ints = np.where(known[places] == ids_R, counts[places], 0).astype(np.int64)
    return found


def _by_frequency(dimension: str, counts_R: Ints) -> list[Slice]:
    bucket_R = np.digitize(counts_R, _FIRST_COUNTS) - 1
    names = [
        str(first) if following == first + 1 else f"{first}-{following - 1}"
        for first, following in pairwise(_FIRST_COUNTS)
    ]
    names.append(f"{_FIRST_COUNTS[-1]}+")
    return [Slice(dimension=dimension, name=name, rows_R=bucket_R == number) for number, name in enumerate(names)]
