"""The cases of the benchmark of the variants."""

from datetime import date, timedelta
from typing import get_args

import pytest

from benchmarks.strategies import LAST_DAY, NUM_HELDOUT_DAYS, Case, cases
from components.comparison import BASELINE
from pipelines.recipes import find_recipe
from trainer.recipe import Arm
from trainer.thaw.variants import recipe_of


def heldout_days(case: Case) -> set[date]:
    first = case.first_day + timedelta(days=case.window_days)
    return {first + timedelta(days=index) for index in range(NUM_HELDOUT_DAYS)}


def groups(of_cases: list[Case]) -> dict[tuple[str, int], list[Case]]:
    found: dict[tuple[str, int], list[Case]] = {}
    for case in of_cases:
        found.setdefault((case.dataset, case.window_days), []).append(case)
    return found


def test_quick_windows_are_of_the_real_log_and_share_no_held_out_day() -> None:
    quick = cases(quick=True)
    assert len(quick) >= 5
    assert set(groups(quick)) == {("complete_journey", 20)}
    assert max(day for case in quick for day in heldout_days(case)) == LAST_DAY


def test_the_full_run_holds_both_logs_and_window_lengths() -> None:
    full = cases(quick=False)
    both = {(dataset, days) for dataset in ("complete_journey", "synthetic") for days in (10, 20)}
    assert set(groups(full)) == both | {("synthetic_vlm", 20)}
    assert len(full) == len(set(full))


@pytest.mark.parametrize(
    "group", [(dataset, days) for dataset in ("complete_journey", "synthetic") for days in (10, 20)]
)
def test_every_arm_is_trained_in_five_cases_of_every_group(group: tuple[str, int]) -> None:
    of_group = groups(cases(quick=False))[group]
    for arm in get_args(Arm):
        assert sum(arm in case.variants for case in of_group) >= 5, arm


def test_windows_of_one_length_share_no_held_out_day() -> None:
    for (dataset, _), of_group in groups(cases(quick=False)).items():
        if dataset == "complete_journey":
            days = [day for case in of_group for day in heldout_days(case)]
            assert len(days) == len(set(days))


def test_every_case_is_judged_against_the_baseline_by_variants_that_exist() -> None:
    for case in cases(quick=False) + cases(quick=True):
        assert BASELINE in case.variants
        recipe = find_recipe("synthetic" if case.dataset.startswith("synthetic") else case.dataset)
        assert len({recipe_of(recipe, variant).digest for variant in case.variants}) == len(case.variants)
