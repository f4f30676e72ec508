"""The canary on whole runs: zero while frozen, more with each pass over labels that rows can hold, and no trace."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer import tiny
from tests.trainer.tiny_runs import (
    COLUMNS,
    CPU,
    MEMORABLE,
    assert_same_tensors,
    dense_of,
    memorable,
    memorable_backbone,
    recipe,
    trained,
    without_speed,
)
from trainer.batches.reader import SlateReader
from trainer.batches.slates import slate_starts
from trainer.embeddings.sharded import ShardedTables
from trainer.model.backbone import Backbone
from trainer.model.ranker import Ranker
from trainer.thaw.canary import Canary, choose_slates


@settings(max_examples=25, deadline=None)
@given(num_slates=st.integers(2, 300), num_rows=st.integers(1, 5000), seed=st.integers(0, 99))
def test_slates_are_as_many_seen_as_unseen_and_at_most_a_twentieth(num_slates: int, num_rows: int, seed: int) -> None:
    request_id = np.repeat(np.arange(num_slates), 1 + np.arange(num_slates) % 3)
    # All that is read of the columns.
    columns = replace(COLUMNS, request_id=request_id)
    found = choose_slates(columns, num_rows=num_rows, seed=seed)
    assert len(found.seen) == len(found.unseen) <= max(1, num_slates / 20)
    assert set(found.seen) <= set(found.trained)
    assert sorted([*found.trained, *found.unseen]) == list(range(num_slates))
    assert abs(len(found.seen) - num_rows * num_slates / len(request_id)) <= 1 or len(found.seen) in (
        1,
        num_slates // 20,
    )
    again = choose_slates(columns, num_rows=num_rows, seed=seed)
    assert all(np.array_equal(getattr(found, name), getattr(again, name)) for name in ("seen", "unseen", "trained"))


def test_frozen_rows_hold_no_label_of_their_own(tiny_backbone: Backbone) -> None:
    for arm, passes in (("frozen", 2), ("delayed", 1)):
        canaries = [record.canary for record in trained(recipe(arm), tiny_backbone).history.epochs]  # type: ignore[arg-type]
        assert [canary["self_influence"] for canary in canaries[:passes]] == [0.0] * passes
        assert all(canary["seen_loss"] > 0 and canary["unseen_loss"] > 0 for canary in canaries)


def test_rows_that_adapt_hold_more_of_their_labels_with_each_pass(one_rank: torch.device) -> None:
    run = trained(recipe("cotrain", MEMORABLE), memorable_backbone(), memorable())
    first, second = (record.canary for record in run.history.epochs)
    assert second["self_influence"] > 2 * first["self_influence"] > 0
    assert second["memory_gap"] == pytest.approx(1 - second["seen_loss"] / second["unseen_loss"])
    assert second["memory_gap"] > first["memory_gap"] > 0


def test_unseen_slates_leave_no_trace_in_a_run_and_seen_ones_do(tiny_backbone: Backbone) -> None:
    slates = choose_slates(COLUMNS, num_rows=1024, seed=tiny.recipe().training.seed)
    starts = slate_starts(COLUMNS.request_id)
    base = trained(recipe("cotrain"), tiny_backbone)
    for numbers, is_alike in ((slates.unseen, True), (slates.seen, False)):
        labels = COLUMNS.labels.copy()
        for number in numbers:
            labels[starts[number] : starts[number + 1]] = 1 - labels[starts[number] : starts[number + 1]]
        run = trained(recipe("cotrain"), tiny_backbone, replace(COLUMNS, labels=labels))
        assert (run.tables.fingerprint() == base.tables.fingerprint()) == is_alike
        heldout = [record.heldout for record in run.history.epochs]
        assert (heldout == [record.heldout for record in base.history.epochs]) == is_alike
        assert without_speed(run.history) != without_speed(base.history), "the canary reads the changed labels"


def test_every_step_trains_on_chosen_slates_only() -> None:
    slates = choose_slates(COLUMNS, num_rows=1024, seed=0)
    reader = SlateReader(COLUMNS, batch_rows=16, seed=0, slates=slates.trained)
    sizes = np.diff(slate_starts(COLUMNS.request_id))
    for epoch in (0, 1):
        assert sum(batch.num_step_rows for batch in reader.epoch(epoch)) == sizes[slates.trained].sum()


def test_reading_leaves_no_trace(one_rank: torch.device, tiny_backbone: Backbone) -> None:
    base = tiny.recipe({"model.dropout": "0.5"})
    ranker = Ranker(base)
    tables = ShardedTables(base.tables, learning_rate=0.1, device=CPU, seed=1)
    slates = choose_slates(COLUMNS, num_rows=1024, seed=0)
    canary = Canary(ranker, tables, COLUMNS, slates, tables=base.tables, device=CPU)
    ranker.train()
    before, bits, state = (
        tables.fingerprint(),
        {k: v.clone() for k, v in ranker.state_dict().items()},
        torch.get_rng_state(),
    )
    first, second = canary.read(), canary.read()
    assert first == second, "dropout is off"
    assert first.self_influence == 0.0
    assert tables.fingerprint() == before
    assert_same_tensors(ranker.state_dict(), bits)
    assert torch.equal(torch.get_rng_state(), state)
    assert ranker.training and all(module.training for module in ranker.modules())
    assert all(parameter.grad is None for parameter in ranker.parameters())
    tables.load_rows(tiny_backbone.rows)
    assert canary.read().self_influence != 0.0


def test_reading_does_not_change_what_a_run_becomes(tiny_backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    base = trained(recipe("cotrain", {"model.dropout": "0.3"}), tiny_backbone)
    read = Canary.read
    monkeypatch.setattr(Canary, "read", lambda self: (read(self), read(self))[1])
    twice = trained(recipe("cotrain", {"model.dropout": "0.3"}), tiny_backbone)
    assert_same_tensors(dense_of(twice), dense_of(base))
    assert without_speed(twice.history) == without_speed(base.history)
