"""The controller on real sharded tables: state policies at a thaw, step sizes, and going back to the backbone."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import ids_of, look_up
from trainer.embeddings.sharded import ShardedTables
from trainer.recipe import Arm, GroupConfig, StatePolicy
from trainer.thaw.arms import plan_of
from trainer.thaw.controller import Thaw
from trainer.thaw.schedule import GroupSchedule, ThawSchedule

CONFIG = tiny.recipe().tables
RATE = 0.05
BACKBONE_ROWS = {"user": torch.full((17, 4), 0.5), "pin": torch.full((33, 4), -0.5)}
BACKBONE_STATE = {"user": torch.full((17,), 2.0), "pin": torch.full((33,), 3.0)}

Began = tuple[Mapping[str, Tensor], Mapping[str, Tensor]]


@pytest.fixture
def tables(one_rank: torch.device) -> ShardedTables:
    tables = ShardedTables(CONFIG, learning_rate=RATE, device=one_rank, seed=1)
    tables.load_rows(BACKBONE_ROWS)
    tables.load_state(BACKBONE_STATE)
    return tables


def batch() -> Batch:
    return next(SlateReader(tiny.columns(), batch_rows=16, seed=0).in_order())


def step(tables: ShardedTables, *, adapting: bool) -> None:
    rows = look_up(tables, ids_of(batch(), CONFIG), adapting=adapting)
    weight = torch.ones(1, requires_grad=True)
    torch.autograd.backward(torch.stack([(weight * found).square().sum() for found in rows.values()]).sum())


def at(thaw: Thaw, progress: float) -> bool:
    """Readies the tables for a step as the loop does; gives whether they adapt in it."""
    adapting = thaw.adapts_at(progress)
    if adapting:
        thaw.prepare(progress)
    return adapting


def thaw_of(
    tables: ShardedTables,
    phase: ThawSchedule,
    state: StatePolicy = "keep",
    *,
    restores_rows: bool = False,
    config: GroupConfig = GroupConfig(learning_rate=RATE),  # noqa: B008
) -> Thaw:
    return Thaw(
        GroupSchedule(phase=phase, config=config),
        state,
        tables,
        backbone_rows=BACKBONE_ROWS,
        backbone_state=BACKBONE_STATE,
        restores_rows=restores_rows,
    )


def pass_of(tables: ShardedTables, thaw: Thaw, epoch: int, *, last_progress: float | None = None) -> list[Began]:
    """Two steps as training makes them; gives the rows and the state that each step began with."""
    thaw.begin_epoch(epoch, last_progress=epoch - 0.5 if last_progress is None else last_progress)
    began: list[Began] = []
    for progress in (epoch, epoch + 0.5):
        adapting = at(thaw, progress)
        began.append((tables.rows(), tables.state()))
        step(tables, adapting=adapting)
    return began


def walk(tables: ShardedTables, arm: Arm, num_epochs: int, state: StatePolicy) -> list[Mapping[str, Tensor]]:
    """The state that each step of a run by an arm began with."""
    plan = plan_of(tiny.recipe({"thaw.arm": arm, "thaw.num_epochs": str(num_epochs)}))
    thaw = thaw_of(tables, plan.schedule, state, restores_rows=plan.restores_rows)
    return [sums for epoch in range(num_epochs) for _, sums in pass_of(tables, thaw, epoch)]


def same(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(found[table], values) for table, values in wanted.items())


ZEROS = {table: torch.zeros_like(values) for table, values in BACKBONE_STATE.items()}


@pytest.mark.parametrize(
    ("policy", "at_the_thaw"), [("keep", BACKBONE_STATE), ("reset", ZEROS), ("restore", BACKBONE_STATE)]
)
def test_the_policy_holds_at_the_thaw_and_only_there(
    tables: ShardedTables, policy: StatePolicy, at_the_thaw: Mapping[str, Tensor]
) -> None:
    began = walk(tables, "delayed", 2, policy)
    assert same(began[0], BACKBONE_STATE)
    assert same(began[1], BACKBONE_STATE), "a frozen step changed the state"
    assert same(began[2], at_the_thaw)
    # The policy is not applied again: the state that the first adapting step left is what the second begins with.
    assert not same(began[3], at_the_thaw)
    assert all((began[3][table] >= values).all() for table, values in at_the_thaw.items())


@pytest.mark.parametrize("policy", ["keep", "reset", "restore"])
def test_tables_that_never_thaw_keep_their_state(tables: ShardedTables, policy: StatePolicy) -> None:
    before = tables.fingerprint()
    walk(tables, "frozen", 2, policy)
    assert tables.fingerprint() == before


def test_a_run_that_adapts_from_its_first_step_thaws_then(tables: ShardedTables) -> None:
    assert same(walk(tables, "cotrain", 1, "reset")[0], ZEROS)


def test_restore_is_the_backbone_s_state_whatever_happened_since(tables: ShardedTables) -> None:
    step(tables, adapting=True)
    assert not same(tables.state(), BACKBONE_STATE)
    assert same(walk(tables, "cotrain", 1, "restore")[0], BACKBONE_STATE)


def test_freezing_again_leaves_the_state_alone(tables: ShardedTables) -> None:
    began = walk(tables, "adapt_then_freeze", 2, "reset")
    assert not same(began[2], ZEROS)
    assert same(began[3], began[2])


def test_the_policy_holds_at_a_thaw_between_a_pass_s_last_step_and_its_end(tables: ShardedTables) -> None:
    thaw = thaw_of(tables, ThawSchedule(num_epochs=2, adapt_from=0.9), "reset")
    frozen, adapting = pass_of(tables, thaw, 0), pass_of(tables, thaw, 1)
    assert all(same(sums, BACKBONE_STATE) for _, sums in frozen)
    assert same(adapting[0][1], ZEROS)


def test_a_run_that_goes_on_from_a_kept_pass_thaws_no_second_time(tables: ShardedTables) -> None:
    pass_of(tables, thaw_of(tables, ThawSchedule(num_epochs=2), "reset"), 0)
    sums = tables.state()
    began = pass_of(tables, thaw_of(tables, ThawSchedule(num_epochs=2), "reset"), 1)
    assert same(began[0][1], sums)


@pytest.mark.parametrize("policy", ["keep", "reset", "restore"])
def test_meda_begins_each_later_pass_with_the_backbone_s_rows(tables: ShardedTables, policy: StatePolicy) -> None:
    other = {table: values + 1 for table, values in BACKBONE_ROWS.items()}
    tables.load_rows(other)
    thaw = thaw_of(tables, ThawSchedule(num_epochs=3), policy, restores_rows=True)
    passes = [pass_of(tables, thaw, epoch) for epoch in range(3)]
    assert same(passes[0][0][0], other), "the first pass begins with what the tables hold"
    for epoch in (1, 2):
        rows, sums = passes[epoch][0]
        assert same(rows, BACKBONE_ROWS)
        assert not same(passes[epoch][1][0], BACKBONE_ROWS), "restored once a pass, not at each step"
        if policy != "keep":
            assert same(sums, ZEROS if policy == "reset" else BACKBONE_STATE)
        else:
            assert not same(sums, BACKBONE_STATE)


def test_a_refreeze_takes_rows_and_state_back_for_good(tables: ShardedTables) -> None:
    before = tables.fingerprint()
    thaw = thaw_of(tables, ThawSchedule(num_epochs=3), "reset")
    pass_of(tables, thaw, 0)
    assert tables.fingerprint() != before
    thaw.refreeze()
    assert tables.fingerprint() == before
    for epoch in (1, 2):
        pass_of(tables, thaw, epoch)
        assert not at(thaw, epoch + 0.9)
        assert tables.fingerprint() == before


def test_the_step_size_is_the_schedule_s_in_each_adapting_step(tables: ShardedTables) -> None:
    """A step of size zero at the thaw, a full one after the warm-up: the fused kernel heeds both."""
    config = GroupConfig(learning_rate=RATE, warmup_epochs=0.5)
    thaw = thaw_of(tables, ThawSchedule(num_epochs=2, adapt_from=1.0), config=config)
    pass_of(tables, thaw, 0)
    (rows_first, sums_first), (rows_second, sums_second) = pass_of(tables, thaw, 1)
    assert same(rows_second, rows_first), "the warm-up begins with steps of size zero"
    assert not same(sums_second, sums_first)
    gradient_moves = {table: (values - rows_second[table]).abs().max() for table, values in tables.rows().items()}
    assert all(0 < move < 4 * RATE for move in gradient_moves.values())

    slow = ShardedTables(CONFIG, learning_rate=RATE, device=torch.device("cpu"), seed=1)
    slow.load_rows(rows_second)
    slow.load_state(sums_second)
    halved = thaw_of(
        slow, ThawSchedule(num_epochs=2), config=replace(config, learning_rate=RATE / 2, warmup_epochs=0.0)
    )
    halved.begin_epoch(0, last_progress=-1.0)
    step(slow, adapting=at(halved, 0.0))
    for table, values in slow.rows().items():
        moved, whole = values - rows_second[table], tables.rows()[table] - rows_second[table]
        torch.testing.assert_close(moved, whole / 2, rtol=1e-4, atol=1e-7)
