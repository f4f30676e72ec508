from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from components.comparison import Case, Comparison, plan_cases
from components.report_comparison.costs import costs_of
from components.run import Run
from pipelines.recipes import synthetic
from trainer.errors import InputError


def comparison(**changes: Any) -> Comparison:
    run = Run(recipe=synthetic(), date=date(2024, 1, 10), store="store")
    return Comparison(run=replace(run, **changes), cases=plan_cases(run.recipe, ["delayed@1.5", "frozen"], 2, [10, 4]))


def test_every_arm_meets_every_seed_and_window_and_the_baseline_leads() -> None:
    found = comparison()
    assert found.arms == ("single_epoch", "delayed@1.5", "frozen")
    assert (found.window_lengths, found.seeds, len(found.cases)) == ((4, 10), (0, 1), 12)
    asked = plan_cases(synthetic(), ["delayed", "single_epoch"], 1, [4])
    assert [case.arm for case in asked] == ["single_epoch", "delayed"]


def test_seeds_count_from_the_recipes() -> None:
    recipe = synthetic().override({"training.seed": "7"})
    assert sorted({case.seed for case in plan_cases(recipe, ["delayed"], 3, [4])}) == [7, 8, 9]


def test_a_case_is_a_recipe_that_differs_in_what_it_names() -> None:
    recipe = Case(arm="delayed*3@1.5", window_days=4, seed=9).recipe_of(synthetic())
    assert (recipe.thaw.arm, recipe.thaw.num_epochs, recipe.groups.tables.thaw_point) == ("delayed", 3, 1.5)
    assert (recipe.window.num_days, recipe.training.seed) == (4, 9)


def test_cases_travel_as_kfp_carries_them() -> None:
    found = comparison()
    carried = [
        {**case, "seed": float(case["seed"]), "window_days": float(case["window_days"])} for case in found.to_json()
    ]
    assert Comparison.parse(found.run, carried) == found


def test_the_key_changes_with_all_that_a_comparison_reads() -> None:
    found = comparison()
    others = [found.key("digest", "2"), comparison(date=date(2024, 1, 11)).key("digest", "1"), found.key()]
    assert len({found.key("digest", "1"), *others}) == 4
    assert comparison(store="elsewhere").key() == found.key()


def test_arms_that_train_alike_are_refused() -> None:
    with pytest.raises(InputError, match=r"'delayed\*2' and 'delayed' train alike"):
        plan_cases(synthetic(), ["delayed", "delayed*2"], 1, [4])


def history(**changes: Any) -> dict[str, Any]:
    epochs = [
        {"duration_s": 2.0, "num_row_gradients": gradients, "canary": {"self_influence": reading}}
        for gradients, reading in ((100, 0.25), (50, 0.5))
    ]
    return {"epochs": epochs, "thaw_epoch": 1.0, "refrozen_at": None, **changes}


def test_costs_are_means_over_seeds_and_the_canary_is_read_before_the_last_pass() -> None:
    costs = costs_of({0: history(), 1: history(refrozen_at=1)})
    assert costs == {
        "epochs": 2,
        "thaw_epoch": 1.0,
        "train_s": 4.0,
        "num_row_gradients": 150,
        "self_influence": 0.25,
        "refrozen_at": {"1": 1},
    }
    one_pass = history()
    one_pass["epochs"] = one_pass["epochs"][:1]
    assert costs_of({0: one_pass})["self_influence"] == 0.0
