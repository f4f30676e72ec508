import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.windows.quality.distinct import DistinctIds

IDS = st.lists(st.integers(0, 2**63 - 1), max_size=60)


def taken(ids: list[int], size: int) -> DistinctIds:
    found = DistinctIds(size)
    found.add(np.array(ids, np.int64))
    return found


@given(st.lists(IDS, max_size=6), st.integers(1, 40))
def test_chunks_merges_and_json_change_nothing(chunks: list[list[int]], size: int) -> None:
    streamed, merged = DistinctIds(size), DistinctIds(size)
    for chunk in chunks:
        streamed.add(np.array(chunk, np.int64))
        merged.merge(taken(chunk, size))
    whole = taken([pin for chunk in chunks for pin in chunk], size)
    for other in (streamed, merged, DistinctIds.from_json(json.loads(json.dumps(whole.to_json())))):
        assert (other.hashes_K == whole.hashes_K).all()
        assert other.size == size


@given(IDS)
def test_few_ids_are_counted_exactly(ids: list[int]) -> None:
    found = taken(ids, 100)
    assert found.num_distinct == len(set(ids))
    assert not found.is_sample


def test_many_ids_are_estimated() -> None:
    for number in (20_000, 300_000):
        found = DistinctIds(4096)
        for start in range(0, number, 50_000):
            ids = np.arange(start, min(number, start + 50_000))
            found.add(np.concatenate([ids, ids]))
        assert found.is_sample
        assert abs(found.num_distinct / number - 1) < 4 / 64
