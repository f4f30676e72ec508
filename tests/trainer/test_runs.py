"""Whole runs on tiny rows in this process: what they leave in tables, network and history, to the bit."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from tests.trainer import tiny
from trainer import runs
from trainer.embeddings.sharded import ShardedTables
from trainer.model.backbone import Backbone, pretrained_part
from trainer.model.ranker import Ranker
from trainer.recipe import Arm, Recipe
from trainer.run_history import RunHistory
from trainer.runs import Run, pretrain, train

COLUMNS, HELDOUT = tiny.columns(num_slates=40, seed=1), tiny.columns(num_slates=30, seed=2)
PRETRAINING = tiny.columns(num_slates=40, seed=3)


@pytest.fixture(scope="module")
def backbone(one_rank: torch.device) -> Backbone:
    run = pretrain(tiny.recipe(), PRETRAINING, device=one_rank)
    dense = {name: values.detach().clone() for name, values in pretrained_part(run.ranker).items()}
    return Backbone(rows=run.tables.rows(), state=run.tables.state(), dense=dense)


def recipe(arm: Arm = "delayed", settings: Mapping[str, str] | None = None) -> Recipe:
    return tiny.recipe({"thaw.arm": arm, **(settings or {})})


def trained(recipe: Recipe, backbone: Backbone) -> Run:
    return train(recipe, COLUMNS, HELDOUT, backbone, device=torch.device("cpu"))


def fingerprint_of(backbone: Backbone) -> str:
    """The fingerprint of untouched tables that were loaded from a backbone."""
    tables = ShardedTables(tiny.recipe().tables, device=torch.device("cpu"), seed=99)
    tables.load_rows(backbone.rows)
    tables.load_state(backbone.state)
    return tables.fingerprint()


@pytest.fixture
def at_epoch_ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Fingerprints of the tables at each epoch's end, read where a run evaluates."""
    fingerprints: list[str] = []
    evaluate = runs.evaluate

    def record(recipe: Recipe, ranker: Ranker, tables: ShardedTables, *rest: Any, **named: Any) -> Mapping[str, float]:
        fingerprints.append(tables.fingerprint())
        return evaluate(recipe, ranker, tables, *rest, **named)

    monkeypatch.setattr(runs, "evaluate", record)
    yield fingerprints


def test_frozen_means_frozen(backbone: Backbone, at_epoch_ends: list[str]) -> None:
    """Rows and optimizer state keep every bit, although the network learns and there is state to lose."""
    assert all(sums.any() for sums in backbone.state.values())
    before = fingerprint_of(backbone)
    run = trained(recipe("frozen", {"thaw.state": "reset"}), backbone)
    assert [*at_epoch_ends, run.tables.fingerprint()] == [before] * 3
    assert [record.phase for record in run.history.epochs] == ["frozen", "frozen"]
    assert run.history.epochs[1].loss < run.history.epochs[0].loss


def test_a_delayed_run_leaves_the_tables_alone_until_the_thaw(backbone: Backbone, at_epoch_ends: list[str]) -> None:
    before = fingerprint_of(backbone)
    run = trained(recipe("delayed"), backbone)
    assert at_epoch_ends[0] == before
    assert at_epoch_ends[1] == run.tables.fingerprint() != before
    assert [record.phase for record in run.history.epochs] == ["frozen", "adapting"]
    assert {point.phase for point in run.history.curve if point.epoch <= 1} == {"frozen"}
    assert {point.phase for point in run.history.curve if point.epoch > 1} == {"adapting"}


def test_adapt_then_freeze_stops_at_the_first_epoch_s_end(backbone: Backbone, at_epoch_ends: list[str]) -> None:
    run = trained(recipe("adapt_then_freeze"), backbone)
    assert at_epoch_ends[0] == at_epoch_ends[1] == run.tables.fingerprint() != fingerprint_of(backbone)


def test_a_thaw_in_mid_epoch_is_mixed(backbone: Backbone, at_epoch_ends: list[str]) -> None:
    run = trained(recipe("delayed", {"thaw.thaw_point": "0.5"}), backbone)
    assert [record.phase for record in run.history.epochs] == ["mixed", "adapting"]
    assert len({fingerprint_of(backbone), *at_epoch_ends}) == 3


def test_arms_agree_until_they_part(backbone: Backbone) -> None:
    frozen, delayed, cotrained, single = (
        trained(recipe(arm), backbone).history.epochs for arm in ("frozen", "delayed", "cotrain", "single_epoch")
    )
    assert frozen[0].losses == delayed[0].losses
    assert frozen[0].heldout == delayed[0].heldout
    assert frozen[1].losses != delayed[1].losses
    assert cotrained[0].losses == single[0].losses != frozen[0].losses
    assert len(single) == 1


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(backbone: Backbone) -> None:
    first, again, other = (
        trained(recipe(settings={"training.seed": seed, "model.dropout": "0.2"}), backbone) for seed in ("5", "5", "6")
    )
    dense, dense_again, dense_other = (run.ranker.state_dict() for run in (first, again, other))
    assert all(torch.equal(dense_again[name], values) for name, values in dense.items())
    assert again.tables.fingerprint() == first.tables.fingerprint()
    assert _without_speed(again.history) == _without_speed(first.history)
    assert not torch.equal(dense_other["heads.weight"], dense["heads.weight"])
    assert other.tables.fingerprint() != first.tables.fingerprint()
    assert _without_speed(other.history) != _without_speed(first.history)


def _without_speed(history: RunHistory) -> object:
    content = history.to_dict()
    return content["curve"], [{**epoch, "rows_per_s": None} for epoch in content["epochs"]]


def test_a_run_begins_with_its_backbone(backbone: Backbone) -> None:
    """With no learning to speak of, what comes out is what went in."""
    still = {"training.learning_rate": "1e-30", "tables.learning_rate": "1e-30"}
    run = trained(recipe("cotrain", still), backbone)
    dense = run.ranker.state_dict()
    assert all(torch.equal(dense[name], values) for name, values in backbone.dense.items())
    assert all(torch.equal(values, backbone.rows[name]) for name, values in run.tables.rows().items())


def test_pretraining_learns_what_a_backbone_holds(one_rank: torch.device) -> None:
    settings = {"backbone.num_epochs": "3", "training.batch_rows": "32"}
    run = pretrain(tiny.recipe(settings), PRETRAINING, device=one_rank)
    losses = [record.loss for record in run.history.epochs]
    assert losses[2] < losses[0]
    assert [record.phase for record in run.history.epochs] == ["adapting"] * 3
    mean_P = torch.tensor(PRETRAINING.pin_features).mean(dim=0)
    torch.testing.assert_close(run.ranker.pin_features.mean_F, mean_P, atol=1e-6, rtol=1e-5)


def test_the_history_tells_each_epoch_and_its_heldout_metrics(backbone: Backbone) -> None:
    run = trained(recipe("delayed", {"evaluation.hit_k": "2"}), backbone)
    content = run.history.to_dict()
    assert [epoch["epoch"] for epoch in content["epochs"]] == [1, 2]
    for epoch in content["epochs"]:
        assert set(epoch["losses"]) == {"head", "pairwise", "contrastive"}
        assert epoch["loss"] == pytest.approx(sum(epoch["losses"].values()))
        assert set(epoch["heldout"]) == {"save_auc", "save_hit2", "save_log_loss"}
        assert 0 < epoch["heldout"]["save_auc"] < 1
        assert epoch["rows_per_s"] > 0
    at = [point["epoch"] for point in content["curve"]]
    assert at == sorted(at)
    assert at[-1] == pytest.approx(2.0)
    assert content["num_steps"] == sum(1 for _ in at)  # with few steps, each is a point of the curve
