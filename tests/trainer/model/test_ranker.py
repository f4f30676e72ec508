from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import CANDIDATE, HISTORY, USER, PlainTables, Rows, ids_of, look_up, num_rows_of
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
    return dict(look_up(PlainTables(tables), ids_of(batch, recipe.tables), adapting=False))


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
    module.fit([features])
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
    module.fit([features])
    assert module.std_F.item() == pytest.approx(1.25**0.5, rel=1e-6)


def test_features_in_parts_are_fitted_as_in_one() -> None:
    features = 1e4 + torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 50.0, 0.0])
    module, in_parts = Standardize(3), Standardize(3)
    module.fit([features])
    in_parts.fit([features[:1], features[1:61], features[61:64], features[64:]])
    torch.testing.assert_close(in_parts.mean_F, module.mean_F)
    torch.testing.assert_close(in_parts.std_F, module.std_F)
    assert in_parts.std_F[2] == 1.0


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


@pytest.fixture(scope="module")
def looking() -> Ranker:
    """A ranker that looks at images and titles, with a projection that is no longer zero."""
    torch.manual_seed(0)
    ranker = Ranker(tiny.recipe(tiny.BUILTIN_VLM)).eval()
    assert ranker.vlm is not None
    nn.init.normal_(ranker.vlm.project.weight)
    return ranker


def batches_with_media(batch_rows: int) -> list[Batch]:
    columns = Columns.of_table(tiny.table_with_media(), tiny.recipe(tiny.BUILTIN_VLM))
    return list(SlateReader(columns, batch_rows=batch_rows, seed=0).in_order())


def test_a_row_with_media_scores_the_same_in_any_company(recipe: Recipe, looking: Ranker) -> None:
    (whole,) = batches_with_media(10_000)
    apart = batches_with_media(1)
    with torch.no_grad():
        for frozen in (False, True):
            looking.freeze_vlm(frozen)
            together = looking(whole, rows_of(whole, recipe)).logits_BH
            each = torch.cat([looking(batch, rows_of(batch, recipe)).logits_BH for batch in apart])
            torch.testing.assert_close(together, each, atol=1e-5, rtol=1e-5)
    looking.freeze_vlm(False)


def test_media_move_every_head_and_the_pin_vector(recipe: Recipe, looking: Ranker) -> None:
    batch = batches_with_media(16)[0]
    outputs = looking(batch, rows_of(batch, recipe))
    assert looking.vlm is not None
    words = dict(looking.vlm.named_parameters())["encoder.word.weight"]
    for target in (*outputs.logits_BH.sum(dim=0), (outputs.user_BD * outputs.pin_BD).sum()):
        (gradient,) = torch.autograd.grad(target, words, retain_graph=True)
        assert gradient.any()


def test_an_encoder_leaves_a_backbones_ranking_as_it_was(recipe: Recipe) -> None:
    """At first the content vector is zero: user and pin vectors are those of a ranker without an encoder."""
    torch.manual_seed(0)
    looking, blind = Ranker(tiny.recipe(tiny.BUILTIN_VLM)), Ranker(recipe)
    blind.two_tower.load_state_dict(looking.two_tower.state_dict())
    batch = batches_with_media(16)[0]
    rows = rows_of(batch, recipe)
    found, wanted = looking(batch, rows), blind(replace(batch, media=None), rows)
    assert torch.equal(found.user_BD, wanted.user_BD)
    assert torch.equal(found.pin_BD, wanted.pin_BD)


def test_without_an_encoder_there_is_nothing_to_freeze(ranker: Ranker) -> None:
    assert ranker.vlm is None
    ranker.freeze_vlm(True)
    assert not [name for name in ranker.state_dict() if name.startswith("vlm.")]
