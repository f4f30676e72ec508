"""Row updates on sharded tables against row-wise Adagrad and the update's rule, written by hand a row at a time.

Shape suffixes: R rows of a table, D their width.
"""

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.trainer.conftest import Ranks
from tests.trainer.embeddings.test_sharded import (
    CONFIG,
    CPU,
    LEARNING_RATE,
    SITES,
    Arrays,
    adagrad_step,
    arrays,
    assert_equal,
    ids,
    loss_of,
    of_rank,
)
from trainer.embeddings.lookup import PIN_TABLE, USER_TABLE, look_up
from trainer.embeddings.sharded import RowUpdate, ShardedTables
from trainer.thaw.remedies import FrequencyRate, Shrinkage

COUNTS = {USER_TABLE: torch.arange(CONFIG.num_user_rows), PIN_TABLE: torch.arange(CONFIG.num_pin_rows) * 2}
UPDATES: dict[str, RowUpdate] = {
    "frequency_lr": FrequencyRate(full_count=9, power=0.5),
    "row_decay": Shrinkage(share=0.1, by_step=False),
    "adam_ar": Shrinkage(share=0.3, by_step=True),
}
NUM_STEPS = 5


def tables_with(update: str | None) -> ShardedTables:
    row_update = UPDATES[update] if update is not None else None
    return ShardedTables(CONFIG, learning_rate=LEARNING_RATE, device=CPU, seed=1, row_update=row_update, counts=COUNTS)


def step(tables: ShardedTables, seed: int) -> None:
    """A step as the loop makes it; ranks share its examples, and a frozen lookup comes between."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    rows = look_up(tables, of_rank(ids(seed, num_rows=4), rank, num_ranks), adapting=True)
    torch.autograd.backward(loss_of(rows) * num_ranks)
    tables.settle()
    look_up(tables, of_rank(ids(seed + 99), rank, num_ranks), adapting=False)
    tables.settle()


def steps(update: str) -> dict[str, Any]:
    """Rows and state after some steps, and what they began with."""
    tables = tables_with(update)
    first = tables.rows()
    for seed in range(NUM_STEPS):
        step(tables, seed)
    found = {"first": first, "rows": tables.rows(), "state": tables.state()}
    return {name: arrays(values, np.float32) for name, values in found.items()}


def by_hand(update: str, rows: Arrays) -> tuple[Arrays, Arrays]:
    """What the steps should leave of rows and state, in float64."""
    sums = {table: np.zeros(len(values)) for table, values in rows.items()}
    last_step = {table: np.zeros(len(values), dtype=int) for table, values in rows.items()}
    for seed in range(NUM_STEPS):
        asked = ids(seed, num_rows=4)
        before = {table: values.copy() for table, values in rows.items()}
        adagrad_step(rows, sums, asked)
        for table in rows:
            touched = {row for site, of in SITES.items() if of == table for row in asked[site].tolist()}
            for row in touched:
                old, new = before[table][row], rows[table][row]
                interval = seed + 1 - last_step[table][row]
                last_step[table][row] = seed + 1
                match update:
                    case "frequency_lr":
                        rows[table][row] = old + min(1.0, int(COUNTS[table][row]) / 9) ** 0.5 * (new - old)
                    case "row_decay":
                        rows[table][row] = new - 0.1 * old
                    case "adam_ar":
                        rows[table][row] = new - min(1.0, 0.3 * interval) * old
    return rows, sums


@pytest.mark.parametrize("update", UPDATES)
def test_an_update_is_what_its_rule_says_row_by_row(one_rank: torch.device, update: str) -> None:
    asked = [ids(seed, num_rows=4) for seed in range(NUM_STEPS)]
    pins = [[*one["candidate"].tolist(), *one["history"].tolist()] for one in asked]
    assert any(len(rows) > len(set(rows)) for rows in pins), "some row is asked for twice in a step"
    found = steps(update)
    rows, sums = by_hand(update, arrays({t: torch.tensor(v) for t, v in found["first"].items()}))
    assert_equal(found["rows"], rows, rtol=1e-4)
    assert_equal(found["state"], sums, rtol=1e-4)
    for values, first in ((found["rows"][table], found["first"][table]) for table in rows):
        np.testing.assert_array_equal(values[0], first[0], err_msg="a row that no step asks for keeps every bit")


def _all_steps() -> dict[str, dict[str, Any]]:
    return {update: steps(update) for update in UPDATES}


def test_two_ranks_update_the_rows_as_one(one_rank: torch.device, two_ranks: Ranks) -> None:
    alone, (first, _) = _all_steps(), two_ranks(_all_steps)
    for update, found in first.items():
        assert_equal(found["rows"], alone[update]["rows"], rtol=1e-5)
        assert_equal(found["state"], alone[update]["state"], rtol=1e-5)


def test_a_rule_that_takes_all_leaves_the_path_as_it_is_to_the_bit(one_rank: torch.device) -> None:
    untouched = tables_with(None)
    ruled = ShardedTables(
        CONFIG,
        learning_rate=LEARNING_RATE,
        device=CPU,
        seed=1,
        row_update=Shrinkage(share=0.0, by_step=True),
        counts=COUNTS,
    )
    for seed in range(3):
        step(untouched, seed)
        step(ruled, seed)
    assert_bits(ruled.rows(), untouched.rows())
    assert_bits(ruled.state(), untouched.state())


def assert_bits(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[table], values) for table, values in wanted.items())


@pytest.mark.parametrize("update", [None, *UPDATES])
def test_local_state_is_all_that_coming_steps_depend_on(one_rank: torch.device, update: str | None) -> None:
    """Intervals too: a row's next shrinkage counts the steps before the copy."""
    whole, copy = tables_with(update), tables_with(update)
    for seed in range(3):
        step(whole, seed)
    kept = whole.local_state()
    step(whole, 3)
    copy.load_local_state(kept)
    step(copy, 3)
    assert copy.fingerprint() == whole.fingerprint()
    whole.load_local_state(kept)
    step(whole, 3)
    assert copy.fingerprint() == whole.fingerprint()
