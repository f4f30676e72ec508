"""Whole runs on tiny rows in this process: what they leave in tables, network and history, to the bit."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer import tiny
from tests.trainer.conftest import Ranks
from tests.trainer.tiny_runs import (
    COLUMNS,
    CPU,
    HELDOUT,
    MEMORABLE,
    PRETRAINING,
    WITHOUT_NEGATIVES,
    dense_of,
    fingerprint_of,
    memorable,
    memorable_backbone,
    recipe,
    trained,
    without_speed,
)
from trainer import runs
from trainer.batches.columns import Columns
from trainer.embeddings.frequency import count_impressions
from trainer.embeddings.sharded import ShardedTables
from trainer.model.backbone import Backbone
from trainer.model.ranker import Ranker
from trainer.recipe import Arm, Recipe
from trainer.runs import Run, evaluate, pretrain, train


@pytest.fixture
def backbone(tiny_backbone: Backbone) -> Backbone:
    return tiny_backbone


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
    run = trained(recipe("delayed", {"groups.tables.thaw_point": "0.5"}), backbone)
    assert [record.phase for record in run.history.epochs] == ["mixed", "adapting"]
    assert len({fingerprint_of(backbone), *at_epoch_ends}) == 3


def test_a_caller_may_judge_by_itself(backbone: Backbone) -> None:
    """Passes that are shared were not judged by the run that made them: each is judged when it is the last."""
    passes: dict[Any, Any] = {}
    for arm in ("single_epoch", "cotrain"):
        run = train(recipe(arm), COLUMNS, None, backbone, device=CPU, passes=passes)
        assert [dict(record.heldout) for record in run.history.epochs] == [{}] * len(run.history.epochs)
        judged = evaluate(recipe(arm), run.ranker, run.tables, HELDOUT, shown=COLUMNS, device=CPU)
        assert judged == trained(recipe(arm), backbone).history.epochs[-1].heldout


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
    assert without_speed(again.history) == without_speed(first.history)
    assert not torch.equal(dense_other["heads.weight"], dense["heads.weight"])
    assert other.tables.fingerprint() != first.tables.fingerprint()
    assert without_speed(other.history) != without_speed(first.history)


def test_a_run_begins_with_its_backbone(backbone: Backbone) -> None:
    """With no learning to speak of, what comes out is what went in."""
    still = {"groups.network.learning_rate": "1e-30", "groups.tables.learning_rate": "1e-30"}
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


@pytest.mark.parametrize("arm", get_args(Arm))
def test_every_arm_trains(backbone: Backbone, arm: Arm) -> None:
    settings = {"remedies.min_count": "2"}  # among so few rows none is shown more often
    run = trained(recipe(arm, settings), backbone, tiny.columns(num_slates=12, seed=1))
    assert len(run.history.epochs) == (1 if arm == "single_epoch" else 2)
    assert all(np.isfinite(record.loss) and 0 < record.heldout["save_auc"] < 1 for record in run.history.epochs)
    assert all(bool(values.isfinite().all()) for values in run.tables.rows().values())
    assert (run.tables.fingerprint() == fingerprint_of(backbone)) == (arm == "frozen")


def moved(run: Run, backbone: Backbone) -> dict[str, set[int]]:
    """Rows of each table that a run changed; their state changed with them, and no other's did."""
    found, rows, state = {}, run.tables.rows(), run.tables.state()
    for table, before in backbone.rows.items():
        is_moved = (rows[table] != before).any(dim=1)
        assert not ((state[table] != backbone.state[table]) & ~is_moved).any()
        found[table] = set(is_moved.nonzero().flatten().tolist())
    return found


def frequent(columns: Columns, count: int) -> dict[str, set[int]]:
    counts = count_impressions(columns, tiny.recipe().tables)
    return {table: set((of >= count).nonzero().flatten().tolist()) for table, of in counts.items()}


def test_rare_rows_never_adapt_under_min_count(backbone: Backbone) -> None:
    found = moved(trained(recipe("min_count", {"remedies.min_count": "6"}), backbone), backbone)
    everything = moved(trained(recipe("cotrain"), backbone), backbone)
    for table, rows in frequent(COLUMNS, 6).items():
        assert found[table] == rows & everything[table]
        assert found[table] and found[table] < everything[table], "there are rows of both kinds"


def test_rare_rows_wait_for_the_last_pass_under_frequency_thaw(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"remedies.frequent_count": "6", "remedies.frequent_thaw_point": "0.5", "thaw.num_epochs": "2"}
    seen: list[dict[str, Tensor]] = []
    evaluate = runs.evaluate

    def keep(recipe: Recipe, ranker: Ranker, tables: ShardedTables, *rest: Any, **named: Any) -> Mapping[str, float]:
        seen.append(tables.rows())
        return evaluate(recipe, ranker, tables, *rest, **named)

    monkeypatch.setattr(runs, "evaluate", keep)
    run = trained(recipe("frequency_thaw", settings), backbone)
    assert [record.phase for record in run.history.epochs] == ["mixed", "adapting"]
    everything = moved(run, backbone)
    for table, rows in frequent(COLUMNS, 6).items():
        first = {int(row) for row in (seen[0][table] != backbone.rows[table]).any(dim=1).nonzero()}
        assert first and first <= rows
        assert everything[table] - rows, "rare rows adapt in the last pass"


def test_slow_tables_take_smaller_steps(backbone: Backbone) -> None:
    """One step only: Adagrad's first from a state of zeros is the step size times a gradient of norm one."""
    once = {"thaw.num_epochs": "1", "thaw.state": "reset", "training.batch_rows": "9999"}
    whole = trained(recipe("cotrain", once), backbone).tables.rows()
    slow = trained(recipe("slow_tables", {**once, "remedies.table_rate_scale": "0.25"}), backbone).tables.rows()
    for table, before in backbone.rows.items():
        assert (whole[table] - before).abs().max() > 0.01
        torch.testing.assert_close(slow[table] - before, (whole[table] - before) / 4, rtol=1e-3, atol=1e-6)


def test_the_network_s_group_has_a_schedule_too(backbone: Backbone) -> None:
    settings = {"groups.network.freeze_point": "1.0", "groups.network.warmup_epochs": "0.5"}
    one = trained(recipe("cotrain", {**settings, "thaw.num_epochs": "1"}), backbone)
    two = trained(recipe("cotrain", settings), backbone)
    first, second = dense_of(one), dense_of(two)
    assert all(torch.equal(second[name], values) for name, values in first.items())
    assert one.tables.fingerprint() != two.tables.fingerprint()


def test_a_guard_goes_back_to_the_backbone_and_says_so(
    one_rank: torch.device, at_epoch_ends: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    start, settings = memorable_backbone(), {**MEMORABLE, "thaw.num_epochs": "3"}
    free = trained(recipe("cotrain", settings), start, memorable())
    at_epoch_ends.clear()
    capfd.readouterr()
    guard = {"guard.refreeze": "true", "guard.max_self_influence": "0.01"}
    run = trained(recipe("cotrain", {**settings, **guard}), start, memorable())
    before = fingerprint_of(start)
    assert free.history.refrozen_at is None
    assert free.history.epochs[1].canary["self_influence"] > free.history.epochs[0].canary["self_influence"] > 0.01
    assert run.history.refrozen_at == run.history.to_dict()["refrozen_at"] == 1
    assert [record.phase for record in run.history.epochs] == ["adapting", "frozen", "frozen"]
    assert at_epoch_ends[0] != before
    assert [*at_epoch_ends[1:], run.tables.fingerprint()] == [before] * 3
    assert [record.canary["self_influence"] for record in run.history.epochs[1:]] == [0.0, 0.0]
    assert "after epoch 1: the tables go back to the backbone's rows and stay frozen" in capfd.readouterr().err
    assert run.history.epochs[0].losses == free.history.epochs[0].losses


@pytest.mark.parametrize("settings", [{"guard.refreeze": "false", "guard.max_self_influence": "1e-9"},
                                      {"guard.refreeze": "true", "guard.max_self_influence": "1e9"}])  # fmt: skip
def test_a_guard_that_is_off_or_not_reached_does_nothing(backbone: Backbone, settings: dict[str, str]) -> None:
    free, guarded = (trained(recipe("cotrain", more), backbone) for more in ({}, settings))
    assert guarded.history.refrozen_at is None
    assert guarded.tables.fingerprint() == free.tables.fingerprint()
    assert without_speed(guarded.history) == without_speed(free.history)


def _pretrained() -> dict[str, Any]:
    """What pretraining leaves on this rank."""
    run = pretrain(tiny.recipe(), PRETRAINING, device=CPU)
    return {"rows": run.tables.rows(), "dense": dense_of(run)}


def test_ranks_pretrain_one_network(two_ranks: Ranks) -> None:
    first, second = two_ranks(_pretrained)
    torch.manual_seed(tiny.recipe().training.seed)
    untrained = Ranker(tiny.recipe()).state_dict()
    assert all(torch.equal(second["dense"][name], values) for name, values in first["dense"].items())
    assert not torch.equal(first["dense"]["two_tower.pin.weight"], untrained["two_tower.pin.weight"])


ON_RANKS: tuple[Arm, ...] = ("head_only", "candidate_only", "frequency_thaw", "cotrain")


def _on_ranks(backbone: Backbone) -> dict[str, dict[str, Any]]:
    """What each arm leaves on this rank; the last one's guard sends its tables back."""
    found: dict[str, dict[str, Any]] = {}
    for arm in ON_RANKS:
        settings = {**WITHOUT_NEGATIVES, "remedies.frequent_count": "6"}
        if arm == "cotrain":
            settings |= {**MEMORABLE, "guard.refreeze": "true", "guard.max_self_influence": "0.01"}
            run = trained(recipe(arm, settings), memorable_backbone(), memorable())
        else:
            run = trained(recipe(arm, settings), backbone)
        found[arm] = {
            "rows": run.tables.rows(),
            "dense": dense_of(run),
            "canary": [record.canary["self_influence"] for record in run.history.epochs],
            "refrozen_at": run.history.refrozen_at,
        }
    return found


def test_two_ranks_train_by_every_kind_of_arm_as_one_does(backbone: Backbone, two_ranks: Ranks) -> None:
    alone, (first, second) = _on_ranks(backbone), two_ranks(_on_ranks, backbone)
    for arm in ON_RANKS:
        assert second[arm]["canary"] == first[arm]["canary"], "ranks read the same"
        assert second[arm]["canary"] == pytest.approx(alone[arm]["canary"], abs=1e-3)
        assert all(torch.equal(second[arm]["dense"][name], values) for name, values in first[arm]["dense"].items())
        for table, values in alone[arm]["rows"].items():
            torch.testing.assert_close(first[arm]["rows"][table], values, atol=1e-3, rtol=0, msg=f"{arm}: {table}")
        # The bias of keys has a gradient of zero, but for rounding, which Adam makes steps of.
        for name, values in alone[arm]["dense"].items():
            if name.endswith("query_key_value.bias"):
                continue
            torch.testing.assert_close(first[arm]["dense"][name], values, atol=2e-3, rtol=0, msg=f"{arm}: {name}")
    assert first["cotrain"]["refrozen_at"] == second["cotrain"]["refrozen_at"] == 1


def _with_an_encoder(backbone: Backbone) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The network after a pass with a frozen encoder, and after another in which it trains."""
    settings = {"vlm.encoder": "builtin", "groups.vlm.thaw_point": "1.0", "groups.vlm.freeze_point": "9.0"}
    found = []
    for num_epochs in ("1", "2"):
        base = recipe("delayed", {**settings, "thaw.num_epochs": num_epochs})
        columns, heldout = (Columns.of_table(tiny.table_with_media(num_slates=20, seed=seed), base) for seed in (1, 2))
        found.append(dense_of(train(base, columns, heldout, backbone, device=CPU)))
    return found[0], found[1]


def test_a_frozen_encoder_keeps_every_bit_while_its_projection_trains(backbone: Backbone, two_ranks: Ranks) -> None:
    torch.manual_seed(tiny.recipe().training.seed)
    before = Ranker(recipe(settings={"vlm.encoder": "builtin"})).state_dict()
    for frozen, thawed in (_with_an_encoder(backbone), *two_ranks(_with_an_encoder, backbone)):
        encoder = [name for name in frozen if name.startswith("vlm.encoder.")]
        assert encoder and all(torch.equal(frozen[name], before[name]) for name in encoder)
        assert any(not torch.equal(thawed[name], before[name]) for name in encoder)
        assert frozen["vlm.project.weight"].any(), "it begins as zeros"
