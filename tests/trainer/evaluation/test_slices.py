import numpy as np
import pandas as pd

from trainer.evaluation.slices import count_ids, slices_of


def test_ids_are_counted_and_unknown_ones_are_zero() -> None:
    window = np.array([5, 3, 5, 5, 9])
    assert count_ids(window, np.array([5, 4, 9, 10, 3, 5])).tolist() == [3, 0, 1, 0, 1, 3]
    assert count_ids(np.array([], dtype=np.int64), np.array([1, 2])).tolist() == [0, 0]


def test_every_row_is_in_one_slice_of_a_dimension() -> None:
    times_of_pin = {0: 0, 1: 1, 2: 7, 3: 8, 4: 63, 5: 64, 6: 500}
    pins = np.repeat(list(times_of_pin), list(times_of_pin.values()))
    heldout = pd.DataFrame({"pin_id": list(times_of_pin), "user_id": [1, 1, 1, 2, 2, 2, 3]})
    slices = slices_of({"pin_id": pins, "user_id": np.array([1, 1, 2])}, heldout)
    found = {(slice_.dimension, slice_.name): np.flatnonzero(slice_.rows_R).tolist() for slice_ in slices}
    assert found == {
        ("pin_impressions", "0"): [0],
        ("pin_impressions", "1-7"): [1, 2],
        ("pin_impressions", "8-63"): [3, 4],
        ("pin_impressions", "64+"): [5, 6],
        ("user_impressions", "0"): [6],
        ("user_impressions", "1-7"): [0, 1, 2, 3, 4, 5],
        ("pin_age", "new"): [0],
        ("pin_age", "old"): [1, 2, 3, 4, 5, 6],
    }
