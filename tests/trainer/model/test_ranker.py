from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import CANDIDATE, HISTORY, USER, PlainTables, Rows, ids_of, num_rows_of
from trainer.model.ranker import Ranker, Standardize
from trainer.model.two_tower import TwoTower
from trainer.recipe import Recipe


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return tiny.recipe()


@pytest.fixture(scope="module")
def ranker(recipe: Recipe) -> Ranker:
    torch.manual_seed(0)
    return Ranker(recipe).eval()


def batches(batch_rows: int) -> list[Batch]:
    return list(SlateReader(tiny.columns(), batch_rows=batch_rows, seed=0).in_order())


def rows_of(batch: Batch, recipe: Recipe) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tables = {
        name: torch.randn(num_rows, recipe.tables.dim, generator=generator)
        for name, num_rows in num_rows_of(recipe.tables).items()
    }
    return dict(PlainTables(tables).start(ids_of(batch, recipe.tables), adapting=False).wait())


def test_a_row_scores_the_same_in_any_company(recipe: Recipe, ranker: Ranker) -> None:
    (whole,) = batches(10_000)
    with torch.no_grad():
        together = ranker(whole, rows_of(whole, recipe)).logits_BH
        apart = torch.cat([ranker(batch, rows_of(batch, recipe)).logits_BH for batch in batches(1)])
    assert together.shape == (len(whole.user_ids_B), 2)
    torch.testing.assert_close(together, apart, atol=1e-6, rtol=1e-5)


def test_scores_do_not_read_labels_slates_or_frequencies(recipe: Recipe, ranker: Ranker) -> None:
    batch = batches(16)[0]
    blind = replace(
        batch,
        labels_BH=1 - batch.labels_BH,
        slates_B=torch.zeros_like(batch.slates_B),
        log_q_B=torch.zeros_like(batch.log_q_B),
    )
    rows = rows_of(batch, recipe)
    assert torch.equal(ranker(batch, rows).logits_BH, ranker(blind, rows).logits_BH)


def test_every_input_moves_every_head(recipe: Recipe, ranker: Ranker) -> None:
    batch = next(batch for batch in batches(16) if batch.history_lengths_B.sum())
    rows = {site: found.requires_grad_() for site, found in rows_of(batch, recipe).items()}
    user_BU, pin_BP = batch.user_features_BU.requires_grad_(), batch.pin_features_BP.requires_grad_()
    inputs = [*rows.values(), user_BU, pin_BP]
    logits_BH = ranker(replace(batch, user_features_BU=user_BU, pin_features_BP=pin_BP), rows).logits_BH
    for head in range(logits_BH.shape[1]):
        for gradient in torch.autograd.grad(logits_BH[:, head].sum(), inputs, retain_graph=True):
            assert gradient.any()


def test_features_are_standardised_by_what_was_fitted() -> None:
    features = torch.tensor([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    module = Standardize(2)
    torch.testing.assert_close(module(features), features)
    module.fit(features)
    # A feature that never varied is only centred.
    torch.testing.assert_close(module.mean_F, torch.tensor([3.0, 5.0]))
    torch.testing.assert_close(module.std_F, torch.tensor([(14 / 3) ** 0.5, 1.0]))
    found = module(torch.tensor([[1.0, 7.0]]))
    torch.testing.assert_close(found, torch.tensor([[-2 / (14 / 3) ** 0.5, 2.0]]))
    assert set(module.state_dict()) == {"mean_F", "std_F"}


def test_large_features_keep_their_deviation() -> None:
    """Timestamps and prices have means far above their deviations, where single precision would lose the latter."""
    features = 1e7 + torch.arange(4.0).unsqueeze(1)
    module = Standardize(1)
    module.fit(features)
    assert module.std_F.item() == pytest.approx(1.25**0.5, rel=1e-6)


def test_two_tower_vectors_have_length_one_and_read_the_mean_history() -> None:
    torch.manual_seed(0)
    module = TwoTower(dim=4)
    (batch,) = batches(10_000)
    rows: Rows = rows_of(batch, tiny.recipe())
    user_BD, pin_BD = module(batch, rows[USER], rows[CANDIDATE], rows[HISTORY])
    for vectors in (user_BD, pin_BD):
        torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(len(batch.user_ids_B)))
    begin = 0
    for row, length in enumerate(batch.history_lengths_B.tolist()):
        history_LD = rows[HISTORY][begin : begin + length]
        begin += length
        mean_D = history_LD.mean(dim=0) if length else torch.zeros(4)
        raw_D = rows[USER][row] + mean_D + module.user(torch.cat([rows[USER][row], mean_D]))
        torch.testing.assert_close(user_BD[row], nn.functional.normalize(raw_D, dim=0), atol=1e-6, rtol=1e-5)
