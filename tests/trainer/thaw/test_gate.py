"""Routes against gradients taken loss by loss, on the real network, and on real tables.

Shape suffixes: N ids of a call site, D width of a table row.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.embeddings.frequency import count_impressions
from trainer.embeddings.lookup import (
    CANDIDATE,
    HISTORY,
    PIN_TABLE,
    SITES_OF_TABLE,
    USER,
    Ids,
    PlainTables,
    ids_of,
    look_up,
    num_rows_of,
)
from trainer.embeddings.sharded import ShardedTables
from trainer.model.losses import RankingObjective
from trainer.model.ranker import Ranker
from trainer.recipe import PathsConfig, RouteArm, RoutesConfig
from trainer.thaw.arms import plan_of
from trainer.thaw.gate import Gate, Passage
from trainer.thaw.remedies import Admission

pytestmark = pytest.mark.usefixtures("one_rank")  # computes with one thread, as training does

RECIPE = tiny.recipe()
COLUMNS = tiny.columns(num_slates=40, seed=1)
LOSSES, SITES = ("head", "pairwise", "contrastive"), (USER, CANDIDATE, HISTORY)
ROUTE_ARMS = get_args(RouteArm)
Grads = dict[str, Tensor]

PATHS = st.builds(
    PathsConfig, **dict.fromkeys(("candidate", "history", "user"), st.sampled_from([0.0, 1.0, 0.25, 3.0]))
)
MATRICES = st.builds(RoutesConfig, head=PATHS, pairwise=PATHS, contrastive=PATHS)


def batch() -> Batch:
    return next(SlateReader(COLUMNS, batch_rows=32, seed=0).in_order())


def asked() -> Ids:
    return ids_of(batch(), RECIPE.tables)


def objective(dropout: str = "0.0") -> RankingObjective:
    torch.manual_seed(0)
    return RankingObjective(Ranker(tiny.recipe({"model.dropout": dropout})), RECIPE.losses, num_ranks=1)


def whole_rows() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = num_rows_of(RECIPE.tables)
    return {table: torch.randn(rows, RECIPE.tables.dim, generator=generator) for table, rows in sizes.items()}


def looked_up() -> tuple[Grads, Grads]:
    """Rows as an adapting lookup gives them, within a graph, and the leaves behind them."""
    found = look_up(PlainTables(whole_rows()), asked(), adapting=False)
    leaves = {site: rows.clone().requires_grad_() for site, rows in found.items()}
    return {site: leaf * 1.0 for site, leaf in leaves.items()}, leaves


def through(gate: Gate, module: RankingObjective, progress: float = 0.0) -> Grads:
    """Gradients that a step sends back into the looked-up rows."""
    rows, leaves = looked_up()
    passage = gate.open(rows, asked(), progress, adapting=True)
    passage.backward(module(batch(), passage.rows))
    return {site: leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for site, leaf in leaves.items()}


def by_hand(routes: RoutesConfig, module: RankingObjective) -> Grads:
    """The same by one differentiation a loss, scaled and summed."""
    _, leaves = looked_up()
    losses = module(batch(), leaves)
    total = {site: torch.zeros_like(leaf) for site, leaf in leaves.items()}
    for name, scales in asdict(routes).items():
        gradients = torch.autograd.grad(losses[name], list(leaves.values()), retain_graph=True, allow_unused=True)
        for site, gradient in zip(leaves, gradients, strict=True):
            total[site] += 0.0 if gradient is None else scales[site] * gradient
    return total


def assert_matrix_holds(routes: RoutesConfig) -> None:
    module, opened = objective(), objective()
    found, wanted = through(Gate(routes), module), by_hand(routes, objective())
    for site in SITES:
        torch.testing.assert_close(found[site], wanted[site], rtol=1e-4, atol=1e-7)
        if not any(scales[site] for scales in asdict(routes).values()):
            assert not found[site].any(), f"a closed path to {site} let something through"
    through(Gate(), opened)
    for mine, theirs in zip(module.parameters(), opened.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if mine.grad is not None and theirs.grad is not None:
            assert torch.equal(mine.grad, theirs.grad), "the network learns from every loss, whatever the routes"


@pytest.mark.parametrize("arm", ROUTE_ARMS)
def test_an_arm_s_matrix_gives_the_gradients_of_single_losses(arm: str) -> None:
    routes = plan_of(tiny.recipe({"thaw.arm": arm})).routes
    assert_matrix_holds(routes)
    assert any(values.any() for values in through(Gate(routes), objective()).values())


@settings(max_examples=25, deadline=None)
@given(routes=MATRICES)
def test_any_matrix_gives_the_gradients_of_single_losses(routes: RoutesConfig) -> None:
    assert_matrix_holds(routes)


def test_a_closed_matrix_sends_nothing_back_and_trains_the_network() -> None:
    closed = PathsConfig(candidate=0.0, history=0.0, user=0.0)
    routes = RoutesConfig(head=closed, pairwise=closed, contrastive=closed)
    assert_matrix_holds(routes)
    assert not any(values.any() for values in through(Gate(routes), objective()).values())


class Backwards:
    """Counts the backward passes through each loss."""

    def __init__(self, passage: Passage) -> None:
        losses = objective()(batch(), passage.rows)
        self.counts = dict.fromkeys(losses, 0)
        for name, loss in losses.items():
            loss.register_hook(lambda gradient, name=name: self._count(name))
        passage.backward(losses)

    def _count(self, name: str) -> None:
        self.counts[name] += 1


def test_an_open_gate_hands_the_very_rows_through_and_adds_no_backward_pass() -> None:
    rows, _ = looked_up()
    passage = Gate().open(rows, asked(), 0.0, adapting=True)
    assert all(passage.rows[site] is rows[site] for site in SITES)
    assert Backwards(passage).counts == {"head": 1, "pairwise": 1, "contrastive": 1}


@pytest.mark.parametrize(
    ("arm", "wanted"),
    [
        ("candidate_only", {"head": 1, "pairwise": 1, "contrastive": 1}),
        ("contrastive_only", {"head": 1, "pairwise": 1, "contrastive": 2}),
        ("no_contrastive", {"head": 2, "pairwise": 2, "contrastive": 1}),
    ],
)
def test_losses_with_the_same_routes_are_differentiated_together(arm: str, wanted: dict[str, int]) -> None:
    rows, _ = looked_up()
    gate = Gate(plan_of(tiny.recipe({"thaw.arm": arm})).routes)
    assert Backwards(gate.open(rows, asked(), 0.0, adapting=True)).counts == wanted


@pytest.mark.parametrize("arm", ROUTE_ARMS)
def test_frozen_rows_pass_a_gate_of_any_routes_untouched(arm: str) -> None:
    rows = look_up(PlainTables(whole_rows()), asked(), adapting=False)
    passage = Gate(plan_of(tiny.recipe({"thaw.arm": arm})).routes).open(rows, asked(), 0.0, adapting=False)
    assert all(passage.rows[site] is rows[site] for site in SITES)
    assert Backwards(passage).counts == {"head": 1, "pairwise": 1, "contrastive": 1}


def test_routes_hold_beside_row_dropout() -> None:
    """The same values are dropped for a closed and for an open matrix, so the open paths' gradients agree."""
    routes = RoutesConfig(head=PathsConfig(user=0.0), pairwise=PathsConfig(user=0.0), contrastive=PathsConfig(user=0.0))
    found = {}
    for name, matrix in (("open", RoutesConfig()), ("routed", routes)):
        module = objective()
        torch.manual_seed(7)
        found[name] = through(Gate(matrix, row_dropout=0.5), module)
    assert not found["routed"][USER].any()
    for site in (CANDIDATE, HISTORY):
        torch.testing.assert_close(found["routed"][site], found["open"][site])
        share = float((found["open"][site] == 0).float().mean())
        assert 0.3 < share < 0.7, "half of the values are dropped"


def rare_and_frequent() -> tuple[Admission, Mapping[str, Tensor], dict[str, Tensor]]:
    """An admission, impressions by row, and which ids of the batch are rare."""
    counts = count_impressions(COLUMNS, RECIPE.tables)
    admission = Admission(rare_below=12, rare_from=1.0)
    is_rare = {site: counts[table][asked()[site]] < 12 for table, sites in SITES_OF_TABLE.items() for site in sites}
    assert all(mask.any() for mask in is_rare.values()) and all((~mask).any() for mask in is_rare.values())
    return admission, counts, is_rare


def test_rare_rows_get_no_gradient_until_they_are_admitted() -> None:
    admission, counts, is_rare = rare_and_frequent()
    opened = through(Gate(), objective())
    waiting = through(Gate(admission=admission, counts=counts), objective(), progress=0.99)
    admitted = through(Gate(admission=admission, counts=counts), objective(), progress=1.0)
    for site in SITES:
        assert opened[site][is_rare[site]].any()
        assert not waiting[site][is_rare[site]].any()
        torch.testing.assert_close(waiting[site][~is_rare[site]], opened[site][~is_rare[site]])
        assert torch.equal(admitted[site], opened[site])


def test_admission_and_routes_hold_together() -> None:
    admission, counts, is_rare = rare_and_frequent()
    routes = RoutesConfig(head=PathsConfig(user=0.0, candidate=0.5), contrastive=PathsConfig(history=0.0))
    wanted = by_hand(routes, objective())
    found = through(Gate(routes, admission=admission, counts=counts), objective())
    for site in SITES:
        torch.testing.assert_close(found[site], wanted[site] * ~is_rare[site].unsqueeze(1), rtol=1e-4, atol=1e-7)


@pytest.fixture
def tables(one_rank: torch.device) -> ShardedTables:
    tables = ShardedTables(RECIPE.tables, learning_rate=0.1, device=one_rank, seed=1)
    tables.load_state({table: torch.full((rows,), 1e-6) for table, rows in num_rows_of(RECIPE.tables).items()})
    return tables


def moved(tables: ShardedTables, gate: Gate, progress: float = 0.0) -> dict[str, set[int]]:
    """Rows of each table whose bits, or whose state's, one step changes."""
    before, state = tables.rows(), tables.state()
    passage = gate.open(look_up(tables, asked(), adapting=True), asked(), progress, adapting=True)
    passage.backward(objective()(batch(), passage.rows))
    found = {}
    for table, rows in tables.rows().items():
        rows_moved, state_moved = (rows != before[table]).any(dim=1), tables.state()[table] != state[table]
        assert torch.equal(rows_moved, state_moved)
        found[table] = set(rows_moved.nonzero().flatten().tolist())
    return found


def ids_at(site: str) -> set[int]:
    return set(asked()[site].tolist())


@pytest.mark.parametrize(
    ("arm", "site", "others"), [("candidate_only", CANDIDATE, HISTORY), ("history_only", HISTORY, CANDIDATE)]
)
def test_rows_that_only_closed_routes_reach_keep_every_bit(
    tables: ShardedTables, arm: str, site: str, others: str
) -> None:
    found = moved(tables, Gate(plan_of(tiny.recipe({"thaw.arm": arm})).routes))
    assert ids_at(others) - ids_at(site), "some rows are reached through the closed path alone"
    assert found == {USER: set(), PIN_TABLE: ids_at(site)}


def test_a_closed_matrix_keeps_every_bit_of_real_tables(tables: ShardedTables) -> None:
    closed = PathsConfig(candidate=0.0, history=0.0, user=0.0)
    before = tables.fingerprint()
    assert moved(tables, Gate(RoutesConfig(head=closed, pairwise=closed, contrastive=closed))) == {
        USER: set(),
        PIN_TABLE: set(),
    }
    assert tables.fingerprint() == before


def test_rare_rows_of_real_tables_keep_every_bit(tables: ShardedTables) -> None:
    admission, counts, is_rare = rare_and_frequent()
    found = moved(tables, Gate(admission=admission, counts=counts))
    frequent = {site: set(asked()[site][~is_rare[site]].tolist()) for site in SITES}
    assert found == {USER: frequent[USER], PIN_TABLE: frequent[CANDIDATE] | frequent[HISTORY]}
    later = moved(tables, Gate(admission=admission, counts=counts), progress=1.0)
    assert later == {USER: ids_at(USER), PIN_TABLE: ids_at(CANDIDATE) | ids_at(HISTORY)}
