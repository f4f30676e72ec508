"""Small tables against nn.Embedding, both ways of their gradients, over random shapes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from trainer.embeddings import small
from trainer.embeddings.small import CUDA_CROSSOVER, Crossover, SmallTable, Way, faster_way, gather, sum_by_row

WAYS: tuple[Way, ...] = ("matmul", "scatter")
# A row may sum all N gradients, each of about 1: float32 rounds each addition by up to 6e-8 of the sum so far.
ATOL, RTOL = 1e-4, 1e-5


def gradient_of(rows_ND: Tensor, weight_RD: Tensor, wanted_ND: Tensor) -> Tensor:
    (found_RD,) = torch.autograd.grad((rows_ND * wanted_ND).sum(), weight_RD)
    return found_RD


@settings(max_examples=100, deadline=None)
@given(
    num_rows=st.integers(1, 200),
    num_ids=st.integers(0, 1500),
    dim=st.integers(1, 40),
    num_distinct=st.integers(1, 200),
    chunk=st.integers(1, 5000),
    seed=st.integers(0, 2**16),
)
def test_both_ways_give_nn_embedding_s_gradient(
    num_rows: int, num_ids: int, dim: int, num_distinct: int, chunk: int, seed: int
) -> None:
    """Whatever the sizes: one row or many, no id or all on few rows, in one chunk or in many."""
    torch.manual_seed(seed)
    embedding = nn.Embedding(num_rows, dim)
    ids_N, wanted_ND = torch.randint(min(num_rows, num_distinct), (num_ids,)), torch.randn(num_ids, dim)
    expected_RD = gradient_of(embedding(ids_N), embedding.weight, wanted_ND)
    found: dict[Way, Tensor] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small, "MAX_ONE_HOT", chunk)
        for way in WAYS:
            rows_ND = gather(embedding.weight, ids_N, way=way)
            assert torch.equal(rows_ND, embedding(ids_N))
            found[way] = gradient_of(rows_ND, embedding.weight, wanted_ND)
            torch.testing.assert_close(found[way], expected_RD, atol=ATOL, rtol=RTOL)
            again_RD = sum_by_row(wanted_ND, ids_N, num_rows=num_rows, way=way)
            assert torch.equal(again_RD, found[way])
    assert torch.equal(found["scatter"], expected_RD)


@pytest.mark.parametrize("way", [*WAYS, None])
@pytest.mark.parametrize(("num_rows", "num_ids", "dim"), [(1, 4, 2), (5, 12, 3), (7, 3, 1), (4, 0, 2)])
def test_gradients_are_those_of_differences(way: Way | None, num_rows: int, num_ids: int, dim: int) -> None:
    torch.manual_seed(num_rows)
    weight_RD = torch.randn(num_rows, dim, dtype=torch.float64, requires_grad=True)
    ids_N = torch.randint(num_rows, (num_ids,))

    def rows(weight_RD: Tensor) -> Tensor:
        return gather(weight_RD, ids_N, way=way).square()

    assert torch.autograd.gradcheck(rows, weight_RD)
    assert torch.autograd.gradgradcheck(rows, weight_RD)


def test_it_is_nn_embedding_to_those_who_load_or_seed_it() -> None:
    torch.manual_seed(3)
    embedding, after = nn.Embedding(128, 8), torch.rand(())
    torch.manual_seed(3)
    table = SmallTable(128, 8)
    assert torch.equal(torch.rand(()), after)
    assert torch.equal(table.weight, embedding.weight)
    table.load_state_dict(embedding.state_dict())


def test_a_row_beyond_the_table_is_an_error() -> None:
    with pytest.raises(IndexError):
        SmallTable(4, 2)(torch.tensor([4]))


def test_a_one_hot_stays_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """16k rows by 16k ids would take 1 GiB at once."""
    sizes = []
    real = Tensor.scatter_

    def scatter_(one_hot: Tensor, *args: object) -> Tensor:
        sizes.append(one_hot.numel())
        return real(one_hot, *args)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(Tensor, "scatter_", scatter_)
    monkeypatch.setattr(small, "MAX_ONE_HOT", 1000)
    sum_by_row(torch.randn(50, 2), torch.randint(99, (50,)), num_rows=99, way="matmul")
    assert max(sizes) <= 1000
    assert sum(sizes) == 50 * 99


def test_the_faster_way_is_the_crossover_s() -> None:
    crossover = Crossover(min_ids=100, max_products=16 * 1000 * 8)

    def way(num_rows: int = 16, num_ids: int = 1000, dim: int = 8) -> Way:
        return crossover.way(num_rows=num_rows, num_ids=num_ids, dim=dim)

    assert way() == way(num_ids=100) == "matmul"
    assert way(num_rows=17) == way(num_ids=1001) == way(dim=9) == "scatter"
    assert way(num_ids=99) == way(num_ids=0) == "scatter"


def test_on_cpu_it_is_a_scatter() -> None:
    assert {faster_way(torch.ones(num_ids, 4), num_rows=16) for num_ids in (0, 100, 10_000)} == {"scatter"}


def test_no_matmul_where_its_one_hot_is_huge() -> None:
    assert CUDA_CROSSOVER.way(num_rows=16384, num_ids=16384, dim=16) == "scatter"


@pytest.mark.parametrize("faster", WAYS)
def test_the_faster_way_is_taken(monkeypatch: pytest.MonkeyPatch, faster: Way) -> None:
    taken: list[str] = []
    for way in WAYS:
        monkeypatch.setattr(small, f"_{way}", lambda gradients_ND, ids_N, num_rows, way=way: taken.append(way))
    monkeypatch.setattr(small, "faster_way", lambda gradients_ND, num_rows: faster)
    sum_by_row(torch.ones(2, 3), torch.zeros(2, dtype=torch.int64), num_rows=7)
    assert taken == [faster]
