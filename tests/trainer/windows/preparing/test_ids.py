import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.embeddings.hashing import hash_rows
from trainer.windows.preparing.ids import IdSample, table_rows


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**63 - 1)), st.integers(1, 10**9), st.integers(0, 2**31))
def test_rows_are_those_of_the_tables(ids: list[int], num_rows: int, seed: int) -> None:
    wanted = hash_rows(torch.tensor(ids, dtype=torch.int64), num_rows=num_rows, seed=seed)
    assert table_rows(np.array(ids, np.int64), num_rows, seed).tolist() == wanted.tolist()


def test_few_ids_are_counted_exactly() -> None:
    sample = IdSample(num_rows=50, seed=3)
    ids = np.arange(40)
    for part in (ids, ids[::2], ids[5:9]):
        sample.add(part)
    rows = table_rows(ids, 50, 3)
    sharing = sum(np.count_nonzero(rows == row) > 1 for row in rows)
    assert sharing > 0
    assert sample.to_json() == {
        "num_distinct": 40,
        "sampled_share": 1.0,
        "text_collisions": 0.0,
        "table_rows": 50,
        "row_collisions": sharing / 40,
    }


def test_texts_of_one_id_are_told_by_their_other_hash() -> None:
    sample = IdSample(num_rows=1000, seed=0)
    ids, checks = np.array([1, 1, 2, 3, 3, 3]), np.array([10, 10, 20, 30, 31, 30], np.uint64)
    sample.add(ids, checks)
    assert sample.to_json()["text_collisions"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("size", [64, 1000])
def test_many_ids_are_estimated_in_fixed_memory_whatever_their_order(size: int) -> None:
    ids = np.random.default_rng(0).integers(0, 2**62, 20_000)
    found = []
    for order in (ids, ids[::-1]):
        parts = [IdSample(num_rows=30_000, seed=1, size=size) for _ in range(2)]
        for number, start in enumerate(range(0, len(order), 700)):
            parts[number % 2].add(order[start : start + 700])
        parts[0].merge(parts[1])
        found.append(parts[0].to_json())
    assert found[0] == found[1]
    assert found[0]["sampled_share"] < 1
    tolerance = 5 / np.sqrt(size / 2)
    assert found[0]["num_distinct"] == pytest.approx(20_000, rel=tolerance)
    # 20,000 ids on 30,000 rows: one shares its row unless all others miss it.
    assert found[0]["row_collisions"] == pytest.approx(1 - np.exp(-20_000 / 30_000), abs=tolerance / 2)
