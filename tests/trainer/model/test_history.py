from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.model.history import HistoryTransformer, pad_histories
from trainer.recipe import ModelConfig

DIM = 4


def transformer(history_length: int = 6, *, seed: int = 0) -> HistoryTransformer:
    torch.manual_seed(seed)
    config = ModelConfig(history_length=history_length, num_transformer_layers=2, num_attention_heads=2, dropout=0.0)
    module = HistoryTransformer(config, dim=DIM)
    with torch.no_grad():
        module.position.normal_()  # positions begin at zero, where they would hide a misplaced token
    return module


def batch_of(lengths: list[int]) -> tuple[Batch, Tensor, Tensor]:
    """A batch with histories of the given lengths, rows of its histories (N, D) and of its candidates (B, D)."""
    generator = torch.Generator().manual_seed(sum(lengths) + len(lengths))
    first = next(SlateReader(tiny.columns(), batch_rows=64, seed=0).in_order())
    actions_N = torch.randint(1, 4, (sum(lengths),), generator=generator)
    batch = replace(first, history_actions_N=actions_N, history_lengths_B=torch.tensor(lengths, dtype=torch.int64))
    rows = torch.randn(sum(lengths), DIM, generator=generator), torch.randn(len(lengths), DIM, generator=generator)
    return batch, *rows


def only(row: int, batch: Batch, history_ND: Tensor, candidate_BD: Tensor) -> tuple[Batch, Tensor, Tensor]:
    """One row of a batch, with what belongs to it."""
    lengths = batch.history_lengths_B.tolist()
    mine = slice(sum(lengths[:row]), sum(lengths[: row + 1]))
    one = replace(
        batch, history_actions_N=batch.history_actions_N[mine], history_lengths_B=batch.history_lengths_B[row : row + 1]
    )
    return one, history_ND[mine], candidate_BD[row : row + 1]


@pytest.mark.parametrize("is_training", [True, False])
def test_padding_changes_nothing(is_training: bool) -> None:
    """Each row gives what it gives alone in a transformer that is just as long as its history, without padding."""
    lengths = [6, 1, 3, 2]
    module = transformer(6).train(is_training)
    inputs = batch_of(lengths)
    with torch.set_grad_enabled(is_training):
        outputs = module(*inputs)
    assert outputs.shape == (4, module.output_size)
    for row, length in enumerate(lengths):
        short = transformer(length).train(is_training)
        weights = {**module.state_dict(), "position": module.position[:length]}
        short.load_state_dict(weights)
        torch.testing.assert_close(outputs[row : row + 1], short(*only(row, *inputs)), atol=1e-6, rtol=1e-5)


def test_scoring_gives_what_training_gives() -> None:
    module, inputs = transformer(), batch_of([3, 0, 6, 1])
    trained = module.train()(*inputs)
    with torch.no_grad():
        torch.testing.assert_close(module.eval()(*inputs), trained.detach(), atol=1e-6, rtol=1e-5)


def test_a_row_without_history_is_zero_and_harms_no_gradient() -> None:
    module = transformer()
    batch, history_ND, candidate_BD = batch_of([0, 3, 0])
    history_ND.requires_grad_()
    candidate_BD.requires_grad_()
    outputs = module(batch, history_ND, candidate_BD)
    assert not outputs[[0, 2]].any()
    assert outputs[1].all()
    torch.autograd.backward(outputs.square().sum())
    gradients = [history_ND.grad, candidate_BD.grad, *(parameter.grad for parameter in module.parameters())]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    assert candidate_BD.grad is not None
    assert not candidate_BD.grad[[0, 2]].any()
    assert candidate_BD.grad[1].any()


def test_a_batch_where_nobody_has_a_history_is_zero() -> None:
    module = transformer()
    outputs = module(*batch_of([0, 0]))
    assert not outputs.any()
    torch.autograd.backward(outputs.sum())
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("is_training", [True, False])
def test_no_rows_give_no_rows(is_training: bool) -> None:
    module = transformer().train(is_training)
    with torch.set_grad_enabled(is_training):
        assert module(*batch_of([])).shape == (0, module.output_size)


def test_the_candidate_is_fused_into_the_history() -> None:
    module = transformer()
    batch, history_ND, candidate_BD = batch_of([2, 3])
    before = module(batch, history_ND, candidate_BD)
    candidate_BD[1] += 1
    after = module(batch, history_ND, candidate_BD)
    assert torch.equal(before[0], after[0])
    assert not torch.isclose(before[1], after[1]).all()


def test_pins_actions_and_their_order_are_read() -> None:
    module = transformer()
    batch, history_ND, candidate_BD = batch_of([3])
    before = module(batch, history_ND, candidate_BD)
    other_action = replace(batch, history_actions_N=batch.history_actions_N + torch.tensor([0, 0, 1]))
    assert not torch.allclose(before, module(other_action, history_ND, candidate_BD))
    assert not torch.allclose(before, module(batch, history_ND + torch.tensor([[0.0], [0.0], [1.0]]), candidate_BD))
    order = torch.tensor([0, 2, 1])
    turned = replace(batch, history_actions_N=batch.history_actions_N[order])
    assert not torch.allclose(before, module(turned, history_ND[order], candidate_BD))


def test_jagged_rows_are_padded_behind() -> None:
    values_ND = torch.arange(1.0, 7.0).unsqueeze(1)
    padded = pad_histories(values_ND, torch.tensor([0, 3, 1, 0, 2]), 4)
    assert padded.squeeze(-1).tolist() == [[0, 0, 0, 0], [1, 2, 3, 0], [4, 0, 0, 0], [0, 0, 0, 0], [5, 6, 0, 0]]
