from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from trainer.model.vlm.cache import EmbeddingCache

WIDTH = 4
TRUTH = torch.randn(50, WIDTH, generator=torch.Generator().manual_seed(0))


def compute_of(keys: list[int], asked: list[int]) -> Callable[[list[int]], Tensor]:
    def compute(places: list[int]) -> Tensor:
        asked.extend(keys[place] for place in places)
        return TRUTH[[keys[place] for place in places]]

    return compute


@pytest.mark.parametrize("num_rows", [0, 1, 7, 20, 50])
def test_it_gives_what_would_be_computed_and_keeps_its_bound(num_rows: int) -> None:
    cache = EmbeddingCache(width=WIDTH, max_bytes=4 * WIDTH * num_rows + 15)
    rng = np.random.default_rng(num_rows)
    asked: list[int] = []
    num_fetched = 0
    for _ in range(100):
        keys = rng.permutation(50)[: rng.integers(0, 12)].tolist()
        assert torch.equal(cache.fetch(keys, compute_of(keys, asked)), TRUTH[keys])
        assert cache.num_bytes <= 4 * WIDTH * num_rows
        num_fetched += len(keys)
    if num_rows == 50:
        assert len(asked) == len(set(asked))
    elif num_rows > 1:
        assert 50 < len(asked) < num_fetched


def test_the_least_recently_used_leave() -> None:
    cache = EmbeddingCache(width=WIDTH, max_bytes=4 * WIDTH * 3)
    for keys, wanted in (
        ([1, 2, 3], [1, 2, 3]),
        ([1], []),
        ([4], [4]),
        ([1, 3, 4], []),
        ([2], [2]),
        ([3, 4], []),
        ([1], [1]),
    ):
        asked: list[int] = []
        cache.fetch(keys, compute_of(keys, asked))
        assert asked == wanted, keys


def test_what_is_cleared_is_computed_again() -> None:
    cache = EmbeddingCache(width=WIDTH, max_bytes=4 * WIDTH * 10)
    asked: list[int] = []
    cache.fetch([1, 2], compute_of([1, 2], asked))
    assert cache.num_bytes > 0
    cache.clear()
    assert cache.num_bytes == 0
    cache.fetch([2, 1], compute_of([2, 1], asked))
    assert asked == [1, 2, 2, 1]
