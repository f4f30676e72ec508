"""The cases of the benchmark of the arms, and how their outcomes are summed up."""

from datetime import date, timedelta

import pytest

from benchmarks.strategies import ARMS, BASELINE, LAST_DAY, NUM_HELDOUT_DAYS, Case, Outcome, cases, summarize


def heldout_days(case: Case) -> set[date]:
    first = case.first_day + timedelta(days=case.window_days)
    return {first + timedelta(days=index) for index in range(NUM_HELDOUT_DAYS)}


def test_quick_windows_are_of_the_real_log_and_share_no_held_out_day() -> None:
    quick = cases(quick=True)
    assert len(quick) >= 5
    assert {(case.dataset, case.window_days) for case in quick} == {("complete_journey", 20)}
    days = [day for case in quick for day in heldout_days(case)]
    assert len(days) == len(set(days))
    assert max(days) == LAST_DAY


def test_the_full_run_holds_both_logs_and_window_lengths() -> None:
    full = cases(quick=False)
    assert {(case.dataset, case.window_days) for case in full} == {
        (dataset, days) for dataset in ("complete_journey", "synthetic") for days in (10, 20)
    }
    assert len(full) == len(set(full))


def test_lifts_are_relative_paired_by_case_and_fractions() -> None:
    outcomes = {}
    for seed, base in enumerate((0.5, 0.8, 0.6)):
        case = Case(dataset="complete_journey", window_days=20, first_day=date(2017, 11, 1), seed=seed)
        lifts = {arm: 0.0 if arm == BASELINE else 0.01 * (1 + seed) for arm in ARMS}
        outcomes[case] = [
            Outcome(arm=arm, save_auc=base * (1 + lift), save_hit3=2 * base * (1 - lift), train_s=1.0)
            for arm, lift in lifts.items()
        ]
    entries = {entry["arm"]: entry for entry in summarize(outcomes)}
    assert set(entries) == set(ARMS)
    assert entries[BASELINE]["auc_lift"] == {"mean": 0, "low": 0, "high": 0}
    lift = entries["delayed"]["auc_lift"]
    assert lift["mean"] == pytest.approx(0.02)
    # Student's t with 2 degrees of freedom: 4.303 times 0.01 / sqrt(3).
    assert (lift["low"], lift["high"]) == pytest.approx((0.02 - 0.02484, 0.02 + 0.02484), abs=1e-5)
    assert entries["delayed"]["save_hit3_lift"]["mean"] == pytest.approx(-0.02)
    assert entries["delayed"]["n"] == 3
