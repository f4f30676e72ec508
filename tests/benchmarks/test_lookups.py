"""The figures of the benchmarks of lookups, from what ranks would report."""

from typing import Any

import pytest

from benchmarks import lookup, scaling, semisync, staleness


def rank_of(**step_ms: float) -> dict[str, Any]:
    """A rank's report of one round."""
    times = dict.fromkeys(semisync.CASES, 100.0) | step_ms
    of_round = {case: {"step_ms": ms, "lookup_ms": 40.0, "exposed_ms": 40.0} for case, ms in times.items()}
    of_round[semisync.SEMI]["exposed_ms"] = 2.0
    return {"rounds": [of_round] * 3, "num_bytes": 1_000_000.0, "bandwidth_bytes_per_s": 20e6, "evidence_ms": 0.9}


def test_the_pipeline_s_figures_are_ratios_within_a_round() -> None:
    found = semisync.summarize([rank_of(semi=90.0, sync=120.0), rank_of(semi=90.0, sync=180.0)])
    assert found["hidden_share"] == pytest.approx(1 - 2 / 40)
    assert found["step_vs_sync"] == pytest.approx(90 / 150), "of means over ranks"
    assert found["lookup_share_of_sync"] == pytest.approx(40 / 150)
    assert found["link_ms"] == 50.0
    assert found["step_vs_limit"] == pytest.approx(90 / 100), "computing takes longer than the link"
    assert found["stats_cost"] == pytest.approx(0.01)


def test_the_limit_is_the_link_where_that_takes_longer() -> None:
    found = semisync.summarize([rank_of(compute=20.0, semi=60.0)] * 2)
    assert found["step_vs_limit"] == pytest.approx(60 / 50)


def test_without_a_link_the_limit_is_computing() -> None:
    ranks = [{**rank_of(semi=120.0), "bandwidth_bytes_per_s": None}] * 2
    found = semisync.summarize(ranks)
    assert (found["link_ms"], found["link_mbit_per_s"]) == (0.0, None)
    assert found["step_vs_limit"] == pytest.approx(1.2)


def test_the_lookup_s_figures() -> None:
    times = {"singleton": 1.0, "general": 2.0, "fused": 3.0, "separate": 6.0, "frozen": 3.0, "cotrain": 4.0}
    counted = {"collectives_fused": 4, "collectives_separate": 12, "dedup_bytes_ratio": 0.1}
    slower = {name: 2 * ms for name, ms in times.items()} | {"frozen": 8.0}
    found = lookup.summarize([{"counted": counted, "rounds": [times, times, slower]}] * 2)
    assert found["collectives_ratio"] == 3.0
    assert found["singleton_ratio"] == found["fused_vs_separate"] == 0.5
    assert found["frozen_step_vs_cotrain_step"] == 0.75


def test_an_exponent_is_the_slope_of_the_logarithms() -> None:
    assert scaling.exponent([10, 100, 1000], [3.0, 3.0, 3.0]) == pytest.approx(0.0)
    assert scaling.exponent([10, 100, 1000], [20.0, 200.0, 2000.0]) == pytest.approx(1.0)
    assert scaling.exponent([1, 4, 16], [5.0, 10.0, 20.0]) == pytest.approx(0.5)


def test_an_exponent_is_of_one_number_of_ranks_and_one_varying_size() -> None:
    entries = [
        {"varies": name, "size": size, "num_ranks": ranks, "mode": mode, "step_ms": float(size) ** ranks}
        for name, sizes in scaling.SIZES.items()
        for size in sizes
        for ranks in scaling.RANKS
        for mode in scaling.MODES
    ]
    found = scaling.exponents(entries)
    for ranks in scaling.RANKS:
        assert set(found[f"{ranks}_ranks"].values()) == {float(ranks)}


def test_the_headline_is_the_step_of_one_rank_and_the_lookup_of_two() -> None:
    """Each figure grows by a power of its own, which tells which of them was fitted."""
    powers = {"step_ms": 0.0, "exposed_ms": 0.25, "bytes_a_step": 0.5}
    entries = [
        {"varies": name, "size": size, "num_ranks": ranks, "mode": mode}
        | {figure: size ** (power + ranks + 10 * (mode == "semi")) for figure, power in powers.items()}
        for name, sizes in scaling.SIZES.items()
        for size in map(float, sizes)
        for ranks in scaling.RANKS
        for mode in scaling.MODES
    ]
    assert scaling.headline(entries) == {
        "rows_exponent": 11.0,
        "history_exponent": 11.0,
        "history_lookup_exponent": 2.25,
        "history_bytes_exponent": 2.5,
    }


def test_every_size_is_measured_and_no_two_vary_at_once() -> None:
    for name, workload in scaling.points():
        differing = [size for size in scaling.SIZES if getattr(workload, size) != getattr(scaling.BASE, size)]
        assert differing in ([], [name])
    assert len(scaling.points()) == sum(len(sizes) for sizes in scaling.SIZES.values())


def test_quality_is_paired_by_window() -> None:
    cases = [
        {name: dict.fromkeys(staleness.METRICS, base * factor) for name, factor in factors.items()}
        for base, factors in ((0.8, {"sync": 1.0}), (0.7, {"sync": 1.0}), (0.9, {"sync": 1.0}))
        for factors in [dict.fromkeys(staleness.LOOKUPS, 1.01) | factors]
    ]
    for entry in staleness.summarize(cases):
        assert entry["n"] == 3
        assert entry["save_auc_difference"]["point"] == pytest.approx(0.01)
        assert entry["auc_interval_width"] == pytest.approx(0.0, abs=1e-9)
