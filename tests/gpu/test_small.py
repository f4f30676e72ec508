import pytest
import torch

from trainer.embeddings.small import Way, gather, sum_by_row


@pytest.mark.parametrize("way", ["matmul", "scatter"])
@pytest.mark.parametrize(("num_rows", "num_ids"), [(16, 100), (16, 20_000), (5000, 5000), (7, 0)])
def test_a_small_table_s_gradient_is_exact_to_rounding_and_always_the_same(
    device: torch.device, way: Way, num_rows: int, num_ids: int
) -> None:
    generator = torch.Generator().manual_seed(num_ids)
    ids_N = torch.randint(num_rows, (num_ids,), generator=generator).to(device)
    gradients_ND = torch.randn(num_ids, 24, generator=generator).to(device)
    found_RD = sum_by_row(gradients_ND, ids_N, num_rows=num_rows, way=way)
    exact_RD = torch.zeros(num_rows, 24, dtype=torch.float64).index_add_(0, ids_N.cpu(), gradients_ND.cpu().double())
    torch.testing.assert_close(found_RD.cpu().double(), exact_RD, atol=1e-3, rtol=1e-5)
    for _ in range(3):
        assert torch.equal(sum_by_row(gradients_ND, ids_N, num_rows=num_rows, way=way), found_RD)


def test_rows_are_gathered(device: torch.device) -> None:
    weight_RD = torch.randn(9, 4, device=device, requires_grad=True)
    ids_N = torch.tensor([8, 0, 8], device=device)
    rows_ND = gather(weight_RD, ids_N)
    assert torch.equal(rows_ND, weight_RD[ids_N])
    (found_RD,) = torch.autograd.grad(rows_ND.sum(), weight_RD)
    assert found_RD.sum(dim=1).tolist() == [4.0, 0, 0, 0, 0, 0, 0, 0, 8.0]
