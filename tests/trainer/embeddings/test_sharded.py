"""TorchRec's tables against row-wise Adagrad written by hand.

Shape suffixes: S lookups of a call site, R rows of a table, D their width.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from tests.trainer.conftest import Ranks
from trainer.embeddings.lookup import CANDIDATE, HISTORY, PIN_TABLE, USER, USER_TABLE, Ids, PlainTables, Rows, look_up
from trainer.embeddings.sharded import ShardedTables
from trainer.recipe import TablesConfig

CPU = torch.device("cpu")
# Neither size divides by two, so that the last shard is smaller.
CONFIG = TablesConfig(num_user_rows=7, num_pin_rows=11, dim=4)
LEARNING_RATE = 0.1
SITES = {USER: USER_TABLE, CANDIDATE: PIN_TABLE, HISTORY: PIN_TABLE}
EPSILON = 1e-8
Arrays = dict[str, NDArray[Any]]


def ids(seed: int, num_rows: int = 9) -> Ids:
    """Lookups with repeated ids; rows 0 of both tables are never asked for."""
    generator = torch.Generator().manual_seed(seed)
    num_history_ids = int(torch.randint(0, 4, (num_rows,), generator=generator).sum())
    sizes = {USER: (CONFIG.num_user_rows, num_rows), CANDIDATE: (CONFIG.num_pin_rows, num_rows)}
    sizes[HISTORY] = (CONFIG.num_pin_rows, num_history_ids)
    return {site: torch.randint(1, rows, (count,), generator=generator) for site, (rows, count) in sizes.items()}


def of_rank(whole: Ids, rank: int, num_ranks: int) -> Ids:
    """Every ``num_ranks``-th id of each call site."""
    return {site: rows_N[rank::num_ranks] for site, rows_N in whole.items()}


def loss_of(rows: Rows) -> Tensor:
    """Something whose gradient differs by call site, by row and by column."""
    scale_D = torch.arange(1.0, CONFIG.dim + 1)
    return torch.stack(
        [(number + 1) * (rows[site].square() * scale_D).sum() for number, site in enumerate(SITES)]
    ).sum()


def adagrad_step(rows: Arrays, sums: Arrays, asked: Ids, learning_rate: float = LEARNING_RATE) -> None:
    """One step of row-wise Adagrad on the loss above, a row at a time, in float64."""
    gradients = {table: np.zeros_like(values) for table, values in rows.items()}
    for number, (site, table) in enumerate(SITES.items()):
        for row in asked[site].tolist():
            gradients[table][row] += (number + 1) * 2 * rows[table][row] * np.arange(1.0, CONFIG.dim + 1)
    for table, gradient_RD in gradients.items():
        for row, gradient_D in enumerate(gradient_RD):
            if gradient_D.any():
                sums[table][row] += np.mean(gradient_D**2)
                rows[table][row] -= learning_rate * gradient_D / (np.sqrt(sums[table][row]) + EPSILON)


def arrays(tensors: Mapping[str, Tensor], dtype: type = np.float64) -> Arrays:
    return {name: tensor.numpy().astype(dtype) for name, tensor in tensors.items()}


def assert_equal(found: Mapping[str, Any], wanted: Mapping[str, Any], rtol: float = 0.0) -> None:
    assert found.keys() == wanted.keys() == {USER_TABLE, PIN_TABLE}
    for table, values in wanted.items():
        np.testing.assert_allclose(found[table], values, rtol=rtol, atol=rtol, err_msg=table)


@pytest.fixture
def tables(one_rank: torch.device) -> ShardedTables:
    return ShardedTables(CONFIG, learning_rate=LEARNING_RATE, device=one_rank, seed=1)


def test_rows_come_back_in_the_order_of_their_ids(tables: ShardedTables) -> None:
    whole, asked = tables.rows(), ids(0)
    for adapting in (False, True):
        found = look_up(tables, asked, adapting=adapting)
        for site, table in SITES.items():
            assert torch.equal(found[site].detach(), whole[table][asked[site]])


def test_a_frozen_lookup_has_no_gradient_and_changes_no_bit(tables: ShardedTables) -> None:
    torch.autograd.backward(
        loss_of(look_up(tables, ids(0), adapting=True))
    )  # so that there is optimizer state to leave alone
    before = tables.fingerprint()
    for seed in range(3):
        rows = look_up(tables, ids(seed), adapting=False)
        assert not any(found.requires_grad for found in rows.values())
        weight = torch.ones(1, requires_grad=True)
        torch.autograd.backward((weight * loss_of(rows)).sum())
    assert tables.fingerprint() == before


def test_an_adapting_lookup_without_a_backward_pass_changes_no_bit(tables: ShardedTables) -> None:
    before = tables.fingerprint()
    rows = look_up(tables, ids(0), adapting=True)
    assert all(found.requires_grad for found in rows.values())
    assert tables.fingerprint() == before


def test_an_adapting_lookup_updates_the_rows_it_read_by_row_wise_adagrad(tables: ShardedTables) -> None:
    rows, sums = arrays(tables.rows()), arrays(tables.state())
    assert not any(values.any() for values in sums.values())
    first = arrays(tables.rows(), np.float32)
    touched: dict[str, set[int]] = {USER_TABLE: set(), PIN_TABLE: set()}
    for seed in range(3):
        asked = ids(seed)
        torch.autograd.backward(loss_of(look_up(tables, asked, adapting=True)))
        adagrad_step(rows, sums, asked)
        for site, table in SITES.items():
            touched[table] |= set(asked[site].tolist())
        assert_equal(tables.rows(), rows, rtol=1e-5)
        assert_equal(tables.state(), sums, rtol=1e-5)
    for table, values in tables.rows().items():
        moved = set(np.flatnonzero((values.numpy() != first[table]).any(axis=1)).tolist())
        assert moved == touched[table]
        assert 0 not in moved
        assert set(tables.state()[table].nonzero().flatten().tolist()) == touched[table]


def test_rows_and_state_come_back_as_they_were_loaded(tables: ShardedTables) -> None:
    rows = {table: torch.randn_like(values) for table, values in tables.rows().items()}
    state = {table: torch.rand_like(values) for table, values in tables.state().items()}
    before = tables.fingerprint()
    tables.load_rows(rows)
    tables.load_state(state)
    assert_equal(tables.rows(), rows)
    assert_equal(tables.state(), state)
    loaded = tables.fingerprint()
    tables.reset_state()
    assert not any(values.any() for values in tables.state().values())
    assert_equal(tables.rows(), rows)
    assert len({before, loaded, tables.fingerprint()}) == 3


def test_loaded_state_is_what_the_next_step_uses(tables: ShardedTables) -> None:
    state = {table: torch.rand_like(values) + 1 for table, values in tables.state().items()}
    tables.load_state(state)
    rows, sums = arrays(tables.rows()), arrays(state)
    torch.autograd.backward(loss_of(look_up(tables, ids(0), adapting=True)))
    adagrad_step(rows, sums, ids(0))
    assert_equal(tables.rows(), rows, rtol=1e-5)


def test_the_fingerprint_sees_one_bit_of_rows_or_state(tables: ShardedTables) -> None:
    before = tables.fingerprint()
    state = tables.state()
    state[PIN_TABLE][3] = 1e-30
    tables.load_state(state)
    with_state = tables.fingerprint()
    rows = tables.rows()
    rows[USER_TABLE][2, 1] = torch.nextafter(rows[USER_TABLE][2, 1], torch.tensor(9.0))
    tables.load_rows(rows)
    assert len({before, with_state, tables.fingerprint()}) == 3


def test_first_rows_are_the_seed_s_with_deviation_by_width(one_rank: torch.device) -> None:
    config = TablesConfig(num_user_rows=4000, num_pin_rows=4000, dim=16)
    rows = [ShardedTables(config, learning_rate=LEARNING_RATE, device=one_rank, seed=seed).rows() for seed in (1, 1, 2)]
    assert_equal(rows[0], rows[1])
    assert not torch.equal(rows[0][USER_TABLE], rows[2][USER_TABLE])
    for values in rows[0].values():
        assert float(values.std()) == pytest.approx(16**-0.5, rel=0.02)


def test_plain_tables_give_the_same_rows(tables: ShardedTables) -> None:
    plain = PlainTables(tables.rows())
    for seed in range(3):
        sharded = look_up(tables, ids(seed), adapting=False)
        found = look_up(plain, ids(seed), adapting=False)
        assert found.keys() == sharded.keys()
        assert all(torch.equal(found[site], sharded[site]) for site in SITES)


def _three_steps() -> dict[str, Any]:
    """Three steps whose examples the ranks share, each loss scaled as the losses of training are."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    tables = ShardedTables(CONFIG, learning_rate=LEARNING_RATE, device=CPU, seed=1)
    found: dict[str, Any] = {"first": tables.rows(), "fingerprints": [tables.fingerprint()], "are_right": []}
    for seed in range(3):
        asked = of_rank(ids(seed), rank, num_ranks)
        look_up(tables, asked, adapting=False)
        found["fingerprints"].append(tables.fingerprint())
        whole = PlainTables(_on_all_ranks(tables.rows()))
        rows, wanted = look_up(tables, asked, adapting=True), look_up(whole, asked, adapting=False)
        found["are_right"] += [torch.equal(rows[site], wanted[site]) for site in SITES]
        torch.autograd.backward(loss_of(rows) * num_ranks)
        found["fingerprints"].append(tables.fingerprint())
    return {
        name: _as_arrays(value) for name, value in (found | {"rows": tables.rows(), "state": tables.state()}).items()
    }


def _on_all_ranks(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    shared = [rows]
    dist.broadcast_object_list(shared, src=0)
    return shared[0]


def _as_arrays(value: Any) -> Any:
    return arrays(value, np.float32) if isinstance(value, dict) else value


def test_two_ranks_make_the_tables_of_one(one_rank: torch.device, two_ranks: Ranks) -> None:
    alone, (first, second) = _three_steps(), two_ranks(_three_steps)
    assert_equal(first["first"], alone["first"])
    # Only the order in which a row's gradients are summed differs.
    assert_equal(first["rows"], alone["rows"], rtol=1e-5)
    assert_equal(first["state"], alone["state"], rtol=1e-5)
    assert second["rows"] == second["state"] == {}
    for found in (alone, first, second):
        assert all(found["are_right"])
        start, *pairs = found["fingerprints"]
        assert pairs[0::2] == [start, *pairs[1::2]][:-1], "a frozen lookup changed a bit"
        assert len(set(found["fingerprints"])) == 4, "an adapting step left this rank's shards as they were"


def test_a_learning_rate_is_what_the_coming_steps_use(tables: ShardedTables) -> None:
    rows, sums = arrays(tables.rows()), arrays(tables.state())
    for seed, rate in enumerate((LEARNING_RATE, 0.4, 0.0, 0.03)):
        before = tables.fingerprint()
        if seed:
            tables.set_learning_rate(rate)
        assert tables.fingerprint() == before, "setting a step size updates no row"
        torch.autograd.backward(loss_of(look_up(tables, ids(seed), adapting=True)))
        adagrad_step(rows, sums, ids(seed), rate)
        assert_equal(tables.rows(), rows, rtol=1e-5)
        assert_equal(tables.state(), sums, rtol=1e-5)
