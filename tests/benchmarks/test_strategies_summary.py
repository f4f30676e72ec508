"""How outcomes are summed up: paired by case, relative, with Student's t interval."""

from dataclasses import dataclass, replace

import pytest

from benchmarks.strategies_summary import Outcome, lines, summarize


@dataclass(frozen=True)
class Case:
    dataset: str
    window_days: int
    seed: int


def outcome(variant: str, auc: float, **changes: float | int | None) -> Outcome:
    base = Outcome(
        variant=variant,
        heldout={"save_auc": auc, "save_hit3": 2 * auc},
        train_s=2.0,
        num_row_gradients=100,
        self_influence=0.0,
        loss_jump=0.0,
        refrozen_at=None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def three_cases() -> dict[Case, list[Outcome]]:
    return {
        Case("complete_journey", 20, seed): [
            outcome("single_epoch", base),
            outcome("delayed", base * (1.01 + 0.01 * seed)),
            outcome(
                "cotrain", base - 0.1, self_influence=0.1 + seed, loss_jump=-0.2, num_row_gradients=200, train_s=4.0
            ),
            outcome("meda", base, num_row_gradients=200, train_s=4.0),
            outcome("cotrain+guard", base - 0.02, refrozen_at=1),
        ]
        for seed, base in enumerate((0.5, 0.8, 0.6))
    }


def test_lifts_are_relative_paired_by_case_and_fractions() -> None:
    entries = {entry["arm"]: entry for entry in summarize(three_cases())["results"]}
    assert entries["single_epoch"]["auc_lift"] == {"mean": 0, "low": 0, "high": 0}
    lift = entries["delayed"]["auc_lift"]
    assert lift["mean"] == pytest.approx(0.02)
    # Student's t with 2 degrees of freedom: 4.303 times 0.01 / sqrt(3).
    assert (lift["low"], lift["high"]) == pytest.approx((0.02 - 0.02484, 0.02 + 0.02484), abs=1e-5)
    assert entries["delayed"]["save_hit3_lift"]["mean"] == pytest.approx(0.02)
    assert entries["delayed"]["n"] == 3


def test_a_variant_of_some_cases_is_paired_within_them() -> None:
    outcomes = three_cases()
    outcomes[Case("complete_journey", 20, 3)] = [outcome("single_epoch", 0.1), outcome("delayed", 0.102)]
    entries = {entry["arm"]: entry["n"] for entry in summarize(outcomes)["results"]}
    assert (entries["delayed"], entries["meda"]) == (4, 3)


def test_ours_stand_beside_each_remedy_with_both_costs() -> None:
    (entry,) = summarize(three_cases())["versus"]
    assert (entry["own"], entry["remedy"], entry["n"]) == ("delayed", "meda", 3)
    assert entry["auc_lift"]["mean"] == pytest.approx(0.02)
    assert (entry["time_ratio"], entry["row_gradients_ratio"]) == (0.5, 0.5)


def test_the_canary_and_the_guard_are_told() -> None:
    figures = summarize(three_cases())
    (canary,), (guard,) = figures["canary"], figures["guard"]
    assert (canary["num_separated"], canary["n"]) == (3, 3)
    assert (canary["least_cotrain"], canary["most_delayed"]) == (pytest.approx(0.1), 0)
    assert guard["auc_lost_by_cotrain"] == pytest.approx(0.1)
    assert guard["saved_share"] == pytest.approx(0.8)
    assert guard["num_refrozen"] == 3


def test_groups_stay_apart_and_new_pins_are_told_where_known() -> None:
    outcomes = three_cases()
    with_new = [
        replace(outcome(variant, auc), heldout={"save_auc": auc, "save_hit3": auc, "save_auc_new_pins": auc})
        for variant, auc in (("single_epoch", 0.5), ("delayed", 0.6))
    ]
    outcomes |= {Case("synthetic_vlm", 20, seed): with_new for seed in range(2)}
    results = summarize(outcomes)["results"]
    assert {(entry["dataset"], entry["window_days"]) for entry in results} == {
        ("complete_journey", 20),
        ("synthetic_vlm", 20),
    }
    told = [entry["auc_lift_new_pins"]["mean"] for entry in results if "auc_lift_new_pins" in entry]
    assert told == [pytest.approx(0.0), pytest.approx(0.2)]


def test_what_the_encoder_adds_is_paired_by_world() -> None:
    def told(variant: str, auc: float) -> Outcome:
        return replace(outcome(variant, auc), heldout={"save_auc": auc, "save_hit3": auc, "save_auc_new_pins": auc / 2})

    outcomes = {Case("synthetic", 20, seed): [told("single_epoch", 0.5 + seed / 10)] for seed in range(2)}
    outcomes |= {Case("synthetic_vlm", 20, seed): [told("single_epoch", 0.55 + seed * 0.11)] for seed in range(2)}
    (entry,) = summarize(outcomes)["encoder"]
    assert (entry["arm"], entry["n"]) == ("single_epoch", 2)
    assert entry["auc_lift"]["mean"] == entry["auc_lift_new_pins"]["mean"] == pytest.approx(0.1)


def test_people_get_a_line_an_entry() -> None:
    figures = summarize(three_cases())
    assert len(list(lines(figures))) == len(figures["results"]) + len(figures["versus"])
