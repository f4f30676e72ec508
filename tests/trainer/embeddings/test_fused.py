"""Both ways to update rows do the same sums."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainer.embeddings.fused import FbgemmRows, FusedRows, TensorRows, fused_rows

CPU = torch.device("cpu")
NUM_SLOTS, DIM = 13, 4


def make(kind: type[TensorRows] | type[FbgemmRows]) -> FusedRows:
    rows = kind(NUM_SLOTS, DIM, learning_rate=0.1, device=CPU)
    rows.rows_SD.copy_(torch.randn(NUM_SLOTS, DIM, generator=torch.Generator().manual_seed(0)))
    return rows


def step(rows: FusedRows, slots_T: Tensor, gradients_TD: Tensor) -> Tensor:
    found_TD = rows.look_up(slots_T)
    found_TD.backward(gradients_TD)  # type: ignore[no-untyped-call]
    return found_TD.detach()


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, NUM_SLOTS - 1), max_size=20), min_size=1, max_size=4),
    rate=st.floats(0.001, 1.0),
    seed=st.integers(0, 1000),
)
def test_tensor_operations_update_rows_as_fbgemm_does(batches: list[list[int]], rate: float, seed: int) -> None:
    """To 1e-5: duplicates of a slot are summed in another order."""
    ours, theirs = make(TensorRows), make(FbgemmRows)
    generator = torch.Generator().manual_seed(seed)
    for rows in (ours, theirs):
        rows.set_learning_rate(rate)
    for batch in batches:
        slots_T = torch.tensor(batch, dtype=torch.int64)
        gradients_TD = torch.randn(len(batch), DIM, generator=generator)
        torch.testing.assert_close(
            step(ours, slots_T, gradients_TD), step(theirs, slots_T, gradients_TD), atol=1e-5, rtol=1e-5
        )
    torch.testing.assert_close(ours.rows_SD, theirs.rows_SD, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.sums_S, theirs.sums_S, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [TensorRows, FbgemmRows])
def test_an_update_touches_looked_up_rows_only_and_as_they_are_then(kind: type[TensorRows] | type[FbgemmRows]) -> None:
    """Rows may be read ahead: an update that comes between a lookup and its backward pass is not lost."""
    rows, before_SD = make(kind), make(kind).rows_SD
    ahead_TD = rows.look_up(torch.tensor([3]))
    step(rows, torch.tensor([3, 5]), torch.ones(2, DIM))
    between_SD = rows.rows_SD.clone()
    ahead_TD.backward(torch.ones(1, DIM))  # type: ignore[no-untyped-call]
    assert torch.equal(ahead_TD, before_SD[[3]])
    assert bool((rows.rows_SD[3] < between_SD[3]).all()), "the second step starts from the first"
    untouched = [slot for slot in range(NUM_SLOTS) if slot not in (3, 5)]
    assert torch.equal(rows.rows_SD[untouched], before_SD[untouched])
    assert rows.sums_S.tolist() == [2.0 if slot == 3 else 1.0 if slot == 5 else 0.0 for slot in range(NUM_SLOTS)]


def test_rows_on_a_cpu_are_updated_by_tensor_operations() -> None:
    assert isinstance(fused_rows(NUM_SLOTS, DIM, learning_rate=0.1, device=CPU), TensorRows)
