import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.embeddings.hashing import hash_rows

MASK = (1 << 64) - 1
IDS = st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=50)


def splitmix64(value: int, seed: int) -> int:
    mixed = (value + 0x9E3779B97F4A7C15 * (seed + 1)) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def test_the_reference_gives_the_published_values() -> None:
    """The first outputs of SplitMix64 from state 1234567, as its authors' C code prints them."""
    assert [splitmix64(1234567, seed) for seed in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(ids=IDS, seed=st.integers(0, 1 << 32), num_rows=st.integers(1, 1 << 40))
def test_rows_are_those_of_splitmix64(ids: list[int], seed: int, num_rows: int) -> None:
    rows = hash_rows(torch.tensor(ids), num_rows=num_rows, seed=seed).tolist()
    assert rows == [(splitmix64(value, seed) >> 1) % num_rows for value in ids]
    assert all(0 <= row < num_rows for row in rows)


def test_any_shape_keeps_its_shape() -> None:
    ids = torch.arange(12).reshape(3, 4)
    rows = hash_rows(ids, num_rows=100, seed=0)
    assert rows.shape == ids.shape
    assert torch.equal(rows.flatten(), hash_rows(ids.flatten(), num_rows=100, seed=0))


def test_seeds_are_different_functions_that_scatter_neighbours() -> None:
    ids = torch.arange(10_000)
    first, second = (hash_rows(ids, num_rows=1000, seed=seed) for seed in (0, 1))
    assert (first == second).float().mean() < 0.01
    counts = torch.bincount(first, minlength=1000)
    assert counts.max() < 30  # the mean is 10: 30 is six standard deviations away
