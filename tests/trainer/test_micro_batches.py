"""A batch in parts against the whole."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.trainer import tiny
from tests.trainer.tiny_runs import WITHOUT_NEGATIVES, recipe, trained
from trainer.batches.batch import Batch
from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import CANDIDATE, HISTORY, USER, Rows
from trainer.micro_batches import micro_batches
from trainer.model.backbone import Backbone
from trainer.model.losses import RankingObjective
from trainer.model.ranker import Ranker

pytestmark = pytest.mark.usefixtures("one_rank")  # computes with one thread, as training does


def batch_of(num_slates: int, seed: int) -> Batch:
    columns = tiny.columns(num_slates=num_slates, seed=seed)
    (batch,) = SlateReader(columns, batch_rows=columns.num_rows + 1, seed=0).in_order()
    return batch


def rows_of(batch: Batch) -> Rows:
    generator = torch.Generator().manual_seed(3)
    sizes = {USER: len(batch.user_ids_B), CANDIDATE: len(batch.pin_ids_B), HISTORY: len(batch.history_ids_N)}
    return {site: torch.randn(size, 4, generator=generator).requires_grad_() for site, size in sizes.items()}


def gradients(batch: Batch, number: int) -> tuple[dict[str, Tensor], dict[str, Tensor], float]:
    """Of the network, of the rows, and the loss, when a batch is taken in parts."""
    settings = tiny.recipe({**WITHOUT_NEGATIVES, "model.dropout": "0"})
    torch.manual_seed(0)
    objective = RankingObjective(Ranker(settings), settings.losses, num_ranks=1)
    rows, total = rows_of(batch), 0.0
    for part, of_part in micro_batches(batch, rows, number):
        loss = torch.stack(list(objective(part, of_part).values())).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    network = {name: values.grad for name, values in objective.named_parameters() if values.grad is not None}
    return network, {site: leaf.grad for site, leaf in rows.items() if leaf.grad is not None}, total


@settings(max_examples=30, deadline=None)
@given(num_slates=st.integers(1, 20), seed=st.integers(0, 50), number=st.integers(1, 8))
def test_parts_add_up_to_the_whole(num_slates: int, seed: int, number: int) -> None:
    batch = batch_of(num_slates, seed)
    whole, parts = gradients(batch, 1), gradients(batch, number)
    assert parts[2] == pytest.approx(whole[2], rel=1e-5)
    for found, wanted in zip(parts[:2], whole[:2], strict=True):
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            torch.testing.assert_close(found[name], values, rtol=1e-4, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(num_slates=st.integers(1, 20), number=st.integers(1, 8))
def test_parts_are_whole_slates_and_all_of_them(num_slates: int, number: int) -> None:
    batch = batch_of(num_slates, 7)
    parts = [part for part, _ in micro_batches(batch, rows_of(batch), number)]
    assert 1 <= len(parts) <= min(number, num_slates)
    assert torch.cat([part.user_ids_B for part in parts]).equal(batch.user_ids_B)
    assert torch.cat([part.history_ids_N for part in parts]).equal(batch.history_ids_N)
    slates = [set(part.slates_B.tolist()) for part in parts]
    assert sum(map(len, slates)) == len(set.union(*slates)) == num_slates
    assert all(part.num_step_rows == batch.num_step_rows for part in parts)


def test_parts_show_their_own_media() -> None:
    looking = tiny.recipe(tiny.BUILTIN_VLM)
    columns = Columns.of_table(tiny.table_with_media(num_slates=12), looking)
    (batch,) = SlateReader(columns, batch_rows=columns.num_rows + 1, seed=0).in_order()
    assert batch.media is not None
    keys = batch.media.keys_M[batch.media.pins_B.numpy()].tolist()
    found: list[int] = []
    for part, _ in micro_batches(batch, rows_of(batch), 3):
        assert part.media is not None
        assert len(part.media.keys_M) == len(set(part.media.keys_M.tolist())) < len(batch.media.keys_M)
        assert len(part.media.images_MSSC) == len(part.media.keys_M)
        found += part.media.keys_M[part.media.pins_B.numpy()].tolist()
    assert found == keys


def test_frozen_rows_want_no_gradient_in_parts() -> None:
    batch = batch_of(9, 0)
    frozen = {site: leaf.detach() for site, leaf in rows_of(batch).items()}
    for _, rows in micro_batches(batch, frozen, 3):
        assert not any(values.requires_grad for values in rows.values())


def test_an_empty_batch_is_one_part() -> None:
    reader = SlateReader(tiny.columns(num_slates=1), batch_rows=99, seed=0, rank=1, num_ranks=2)
    (batch,) = reader.in_order()
    assert len(batch.user_ids_B) == 0
    ((part, _),) = micro_batches(batch, rows_of(batch), 4)
    assert len(part.user_ids_B) == 0


def test_a_run_in_parts_is_the_run_of_whole_batches(tiny_backbone: Backbone) -> None:
    """Every step updates once, the last and smaller ones too."""
    settings = {**WITHOUT_NEGATIVES, "training.batch_rows": "24"}
    whole = trained(recipe("delayed", settings), tiny_backbone)
    parts = trained(recipe("delayed", {**settings, "training.num_micro_batches": "4"}), tiny_backbone)
    assert [epoch.num_row_gradients for epoch in parts.history.epochs] == [
        epoch.num_row_gradients for epoch in whole.history.epochs
    ]
    for table, values in whole.tables.rows().items():
        torch.testing.assert_close(parts.tables.rows()[table], values, rtol=1e-3, atol=1e-4)
    # Not the network's every bit: Adam makes whole steps of gradients that are zero but for rounding.
    for found, wanted in zip(parts.history.epochs, whole.history.epochs, strict=True):
        assert found.loss == pytest.approx(wanted.loss, rel=1e-4)
        assert found.heldout["save_log_loss"] == pytest.approx(wanted.heldout["save_log_loss"], rel=1e-3)
