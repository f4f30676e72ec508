"""The rounds of the benchmark of routes, and how they are summed up."""

from typing import get_args

import pytest

from benchmarks.rounds import order_of
from benchmarks.routes import CASES, NO_GATE, OPEN, summarize
from trainer.recipe import RouteArm


def test_every_named_route_is_a_case_beside_the_open_gate_and_none() -> None:
    assert (NO_GATE, OPEN, *get_args(RouteArm)) == CASES


def test_each_case_stands_once_at_every_place() -> None:
    orders = [order_of(CASES, number) for number in range(len(CASES))]
    for places in (*orders, *zip(*orders, strict=True)):
        assert sorted(places) == sorted(CASES)
    assert order_of(CASES, len(CASES)) == orders[0]


def test_ratios_are_taken_within_rounds() -> None:
    """The machine slows down threefold meanwhile, and once another process takes a case's core."""
    rounds = []
    for slowness in (1.0, 2.0, 3.0):
        times = dict.fromkeys(CASES, 10.0 * slowness)
        times[OPEN] *= 1.25
        times["head_only"] *= 2.5
        rounds.append(times)
    rounds[2]["head_only"] *= 9
    found = {entry["case"]: entry for entry in summarize(rounds)}
    assert list(found) == list(CASES)
    assert found[OPEN]["against"] == found[NO_GATE]["against"] == NO_GATE
    assert found[NO_GATE]["ratio"] == found[NO_GATE]["ratio_high"] == 1.0
    assert found[OPEN]["ratio"] == 1.25
    assert found["head_only"]["against"] == OPEN
    assert found["head_only"]["ratio"] == found["head_only"]["ratio_low"] == 2.0
    assert found["head_only"]["ratio_high"] == 18.0
    assert found["candidate_only"]["ratio"] == pytest.approx(0.8)
    assert found["candidate_only"]["step_ms"] == 20.0
