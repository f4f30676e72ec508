"""Losses against loops over pairs, and over rows, in plain Python."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import PIN_TABLE, USER_TABLE, PlainTables, Rows, ids_of, look_up, num_rows_of
from trainer.model.losses import PretrainingObjective, RankingObjective, contrastive, pairwise
from trainer.model.ranker import Ranker
from trainer.recipe import Recipe

TEMPERATURE = 0.3
BATCH_ROWS = 40


def batches(*, num_ranks: int = 1, rank: int = 0, seed: int = 0) -> Iterator[Batch]:
    columns = tiny.columns(num_slates=30, seed=seed)
    return SlateReader(columns, batch_rows=BATCH_ROWS, seed=1, rank=rank, num_ranks=num_ranks).epoch(0)


def unit_vectors(num_rows: int, seed: int) -> Tensor:
    vectors = torch.randn(num_rows, 4, generator=torch.Generator().manual_seed(seed))
    return nn.functional.normalize(vectors, dim=-1)


def pairwise_by_hand(
    logits: list[float], saves: list[float], slates: list[int], weights: list[float] | None = None
) -> float:
    total = 0.0
    weights = weights or [1.0] * len(logits)
    for saved, (save, slate) in enumerate(zip(saves, slates, strict=True)):
        if save:
            others = [other for other in range(len(logits)) if slates[other] == slate and not saves[other]]
            losses = [weights[other] * math.log1p(math.exp(logits[other] - logits[saved])) for other in others]
            total += sum(losses) / sum(weights[other] for other in others) if losses else 0.0
    return total


def with_weights(batch: Batch) -> Batch:
    """A batch whose rows without a label count four times, as after sampling a quarter of them."""
    return replace(batch, weights_B=torch.where(batch.labels_BH.any(dim=1), 1.0, 4.0))


def contrastive_by_hand(user_BD: Tensor, pin_BD: Tensor, batch: Batch, temperature: float) -> float:
    users, pins, log_q = batch.user_ids_B.tolist(), batch.pin_ids_B.tolist(), batch.log_q_B.tolist()
    saves, total = batch.labels_BH[:, 0].tolist(), 0.0

    def logit(anchor: int, other: int) -> float:
        cosine = float((user_BD[anchor].double() @ pin_BD[other].double()).item())
        return cosine / temperature - float(log_q[other])

    for anchor in range(len(users)):
        if not saves[anchor]:
            continue
        negatives = [
            other
            for other in range(len(users))
            if pins[other] != pins[anchor] and not (users[other] == users[anchor] and saves[other])
        ]
        own = logit(anchor, anchor)
        total += math.log(math.exp(own) + sum(math.exp(logit(anchor, other)) for other in negatives)) - own
    return total


@pytest.mark.parametrize("seed", range(3))
def test_pairwise_is_the_mean_over_a_slate_s_unsaved_pins(seed: int) -> None:
    batch = next(batches(seed=seed))
    logits_B = 3 * torch.randn(len(batch.slates_B), generator=torch.Generator().manual_seed(seed))
    save_B = batch.labels_BH[:, 0]
    wanted = pairwise_by_hand(logits_B.tolist(), save_B.tolist(), batch.slates_B.tolist())
    assert wanted > 0
    assert float(pairwise(logits_B, save_B, batch.slates_B, batch.weights_B)) == pytest.approx(wanted, rel=1e-5)


def test_pairwise_counts_a_row_by_its_weight() -> None:
    batch = with_weights(next(batches()))
    logits_B = 3 * torch.randn(len(batch.slates_B), generator=torch.Generator().manual_seed(3))
    save_B = batch.labels_BH[:, 0]
    lists = (logits_B.tolist(), save_B.tolist(), batch.slates_B.tolist())
    found = float(pairwise(logits_B, save_B, batch.slates_B, batch.weights_B))
    assert found == pytest.approx(pairwise_by_hand(*lists, batch.weights_B.tolist()), rel=1e-5)
    assert found != pytest.approx(pairwise_by_hand(*lists), rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_contrastive_leaves_out_same_pins_and_the_user_s_other_saves(seed: int) -> None:
    batch = next(batches(seed=seed))
    # With few ids of each kind, every exclusion is met many times.
    batch = replace(batch, user_ids_B=batch.user_ids_B % 3, pin_ids_B=batch.pin_ids_B % 7)
    num_rows = len(batch.user_ids_B)
    user_BD, pin_BD = unit_vectors(num_rows, seed), unit_vectors(num_rows, seed + 10)
    found = float(contrastive(user_BD, pin_BD, batch, TEMPERATURE))
    assert found == pytest.approx(contrastive_by_hand(user_BD, pin_BD, batch, TEMPERATURE), rel=1e-5)
    even = replace(batch, log_q_B=torch.zeros(num_rows))
    assert found != pytest.approx(float(contrastive(user_BD, pin_BD, even, TEMPERATURE)), rel=1e-3), "log-Q is unused"


def without_saves(batch: Batch) -> Batch:
    return replace(batch, labels_BH=batch.labels_BH * torch.tensor([0.0, 1.0]))


def only_saves(batch: Batch) -> Batch:
    return replace(batch, labels_BH=torch.ones_like(batch.labels_BH))


@pytest.mark.parametrize("change", [without_saves, only_saves])
def test_a_batch_without_pairs_costs_nothing(change: Callable[[Batch], Batch]) -> None:
    batch = change(next(batches()))
    logits_B = torch.randn(len(batch.slates_B), requires_grad=True)
    loss = pairwise(logits_B, batch.labels_BH[:, 0], batch.slates_B, batch.weights_B)
    torch.autograd.backward(loss)
    assert loss.item() == 0.0
    assert logits_B.grad is not None
    assert not logits_B.grad.any()


def test_a_batch_without_saves_has_no_contrastive_loss() -> None:
    batch = without_saves(next(batches()))
    user_BD = unit_vectors(len(batch.slates_B), 1).requires_grad_()
    pin_BD = unit_vectors(len(batch.slates_B), 2).requires_grad_()
    loss = contrastive(user_BD, pin_BD, batch, TEMPERATURE)
    torch.autograd.backward(loss)
    assert loss.item() == 0.0
    for gradient in (user_BD.grad, pin_BD.grad):
        assert gradient is not None
        assert not gradient.any()


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return tiny.recipe()


@pytest.fixture(scope="module")
def ranker(recipe: Recipe) -> Ranker:
    torch.manual_seed(0)
    return Ranker(recipe)


def rows_of(batch: Batch, recipe: Recipe) -> Rows:
    generator = torch.Generator().manual_seed(4)
    sizes = num_rows_of(recipe.tables)
    tables = {
        name: torch.randn(sizes[name], recipe.tables.dim, generator=generator) for name in (USER_TABLE, PIN_TABLE)
    }
    return look_up(PlainTables(tables), ids_of(batch, recipe.tables), adapting=False)


@pytest.mark.parametrize("change", [lambda batch: batch, with_weights], ids=["all rows", "sampled"])
def test_the_objective_weighs_heads_rows_and_losses(
    recipe: Recipe, ranker: Ranker, change: Callable[[Batch], Batch]
) -> None:
    batch = change(next(batches()))
    rows, num_rows = rows_of(batch, recipe), len(batch.user_ids_B)
    losses = RankingObjective(ranker, recipe.losses, num_ranks=1)(batch, rows)
    outputs = ranker(batch, rows)
    head = sum(
        of_row * weight * -math.log(probability if label else 1 - probability)
        for of_row, logits, labels in zip(
            batch.weights_B.tolist(), outputs.logits_BH.sigmoid().tolist(), batch.labels_BH.tolist(), strict=True
        )
        for weight, probability, label in zip(recipe.losses.head_weights, logits, labels, strict=True)
    )
    lists = (outputs.logits_BH[:, 0], batch.labels_BH[:, 0], batch.slates_B, batch.weights_B)
    pairs = pairwise_by_hand(*(values.tolist() for values in lists))
    matches = contrastive_by_hand(outputs.user_BD, outputs.pin_BD, batch, recipe.losses.temperature)
    found = {name: loss.item() for name, loss in losses.items()}
    assert found == pytest.approx(
        {
            "head": head / num_rows,
            "pairwise": recipe.losses.pairwise_weight * pairs / num_rows,
            "contrastive": recipe.losses.contrastive_weight * matches / num_rows,
        },
        rel=1e-4,
    )


def test_pretraining_minimises_the_same_contrastive_loss(recipe: Recipe, ranker: Ranker) -> None:
    batch = next(batches())
    rows = rows_of(batch, recipe)
    losses = PretrainingObjective(ranker.two_tower, recipe.losses, num_ranks=1)(batch, rows)
    outputs = ranker(batch, rows)
    wanted = contrastive_by_hand(outputs.user_BD, outputs.pin_BD, batch, recipe.losses.temperature)
    assert {name: loss.item() for name, loss in losses.items()} == pytest.approx(
        {"contrastive": wanted / len(batch.user_ids_B)}, rel=1e-4
    )


def gradients(
    recipe: Recipe, ranker: Ranker, batch: Batch, *, num_ranks: int, losses: tuple[str, ...]
) -> dict[str, Tensor]:
    ranker.zero_grad()
    found = RankingObjective(ranker, recipe.losses, num_ranks=num_ranks)(batch, rows_of(batch, recipe))
    torch.autograd.backward(torch.stack([found[name] for name in losses]).sum())
    return {name: p.grad.clone() for name, p in ranker.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("loss", ["head", "pairwise"])
def test_a_step_split_over_ranks_averages_to_the_step_of_one(
    recipe: Recipe, ranker: Ranker, num_ranks: int, loss: str
) -> None:
    whole = gradients(recipe, ranker, next(batches()), num_ranks=1, losses=(loss,))
    parts = [
        gradients(recipe, ranker, next(batches(num_ranks=num_ranks, rank=rank)), num_ranks=num_ranks, losses=(loss,))
        for rank in range(num_ranks)
    ]
    assert any(gradient.any() for gradient in whole.values())
    for name, wanted in whole.items():
        average = torch.stack([part[name] for part in parts]).mean(dim=0)
        torch.testing.assert_close(average, wanted, atol=1e-6, rtol=1e-4, msg=name)


def test_a_rank_without_a_slate_in_a_step_still_has_every_gradient(recipe: Recipe, ranker: Ranker) -> None:
    """Data-parallel training waits for a gradient of each parameter from each rank."""
    columns = tiny.columns(num_slates=2)
    reader = SlateReader(columns, batch_rows=1, seed=1, rank=1, num_ranks=2)
    batch = next(reader.epoch(0))
    assert len(batch.user_ids_B) == 0
    found = gradients(recipe, ranker, batch, num_ranks=2, losses=("head", "pairwise", "contrastive"))
    assert found.keys() == dict(ranker.named_parameters()).keys()
    assert not any(gradient.any() for gradient in found.values())
