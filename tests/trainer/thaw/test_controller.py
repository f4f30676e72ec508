"""State policies on real sharded tables: what the optimizer state is when tables thaw, and what stays as it was."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import ids_of
from trainer.embeddings.sharded import ShardedTables
from trainer.recipe import Arm, StatePolicy, ThawConfig
from trainer.thaw.arms import schedule_of
from trainer.thaw.controller import Thaw

CONFIG = tiny.recipe().tables
BACKBONE_STATE = {"user": torch.full((17,), 2.0), "pin": torch.full((33,), 3.0)}


@pytest.fixture
def tables(one_rank: torch.device) -> ShardedTables:
    tables = ShardedTables(CONFIG, device=one_rank, seed=1)
    tables.load_state(BACKBONE_STATE)
    return tables


def batch() -> Batch:
    return next(SlateReader(tiny.columns(), batch_rows=16, seed=0).in_order())


def step(tables: ShardedTables, *, adapting: bool) -> None:
    rows = tables.start(ids_of(batch(), CONFIG), adapting=adapting).wait()
    weight = torch.ones(1, requires_grad=True)
    torch.autograd.backward(torch.stack([(weight * found).square().sum() for found in rows.values()]).sum())


def walk(tables: ShardedTables, arm: Arm, num_epochs: int, state: StatePolicy) -> list[Mapping[str, Tensor]]:
    """Two steps an epoch as training makes them; gives the state that each step began with."""
    thaw = Thaw(schedule_of(ThawConfig(arm=arm, num_epochs=num_epochs)), state, tables, BACKBONE_STATE)
    began: list[Mapping[str, Tensor]] = []
    for progress in (half / 2 for half in range(2 * num_epochs)):
        adapting = thaw.at(progress)
        began.append(tables.state())
        step(tables, adapting=adapting)
    return began


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
