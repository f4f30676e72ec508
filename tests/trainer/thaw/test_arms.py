"""What each arm plans, and which of its passes other arms may share."""

import math
from collections.abc import Mapping
from typing import get_args

import pytest

from tests.trainer import tiny
from trainer.recipe import Arm, PathsConfig, RoutesConfig
from trainer.thaw.arms import ARMS, ArmPlan, plan_of
from trainer.thaw.remedies import Admission, FrequencyRate, Shrinkage

QUARTERS = tuple(quarter / 4 for quarter in range(12))
OPEN, CLOSED = PathsConfig(), PathsConfig(candidate=0.0, history=0.0, user=0.0)


def plan(arm: Arm, num_epochs: int = 2, settings: Mapping[str, str] | None = None) -> ArmPlan:
    return plan_of(tiny.recipe({"thaw.arm": arm, "thaw.num_epochs": str(num_epochs), **(settings or {})}))


def phases(found: ArmPlan) -> str:
    """One letter a quarter epoch, A where tables adapt and . where they are frozen, for as long as the arm trains."""
    schedule = found.schedule
    return "".join("A" if schedule.adapts_at(at) else "." for at in QUARTERS if at < schedule.num_epochs)


@pytest.mark.parametrize(
    ("arm", "num_epochs", "wanted", "thaw_epoch"),
    [
        ("single_epoch", 1, "AAAA", None),
        ("single_epoch", 3, "AAAA", None),
        ("cotrain", 1, "AAAA", None),
        ("cotrain", 2, "AAAAAAAA", None),
        ("cotrain", 3, "AAAAAAAAAAAA", None),
        ("frozen", 1, "....", None),
        ("frozen", 2, "........", None),
        ("delayed", 1, "AAAA", None),
        ("delayed", 2, "....AAAA", 1.0),
        ("delayed", 3, "........AAAA", 2.0),
        ("adapt_then_freeze", 1, "AAAA", None),
        ("adapt_then_freeze", 2, "AAAA....", None),
        ("adapt_then_freeze", 3, "AAAA........", None),
        ("contrastive_only", 2, "AAAAAAAA", None),
        ("meda", 2, "AAAAAAAA", None),
        ("min_count", 2, "AAAAAAAA", None),
        ("frequency_thaw", 1, "AAAA", None),
        ("frequency_thaw", 2, "..AAAAAA", 0.5),
    ],
)
def test_when_each_arm_adapts(arm: Arm, num_epochs: int, wanted: str, thaw_epoch: float | None) -> None:
    found = plan(arm, num_epochs)
    assert phases(found) == wanted
    assert found.schedule.num_epochs == len(wanted) // 4
    assert found.schedule.thaw_epoch == thaw_epoch


@pytest.mark.parametrize(
    ("thaw_point", "num_epochs", "wanted"),
    [(0.0, 1, "AAAA"), (0.5, 1, "..AA"), (0.6, 1, "...A"), (1.0, 2, "....AAAA"), (1.25, 3, ".....AAAAAAA")],
)
def test_a_thaw_point_may_be_a_fraction(thaw_point: float, num_epochs: int, wanted: str) -> None:
    found = plan("delayed", num_epochs, {"groups.tables.thaw_point": str(thaw_point)})
    assert phases(found) == wanted
    assert found.schedule.thaw_epoch == (thaw_point or None)


def test_a_freeze_point_ends_a_thaw() -> None:
    settings = {"groups.tables.thaw_point": "0.5", "groups.tables.freeze_point": "1.5"}
    assert phases(plan("delayed", 2, settings)) == "..AAAA.."
    early = {"remedies.frequent_thaw_point": "0.25"}
    assert phases(plan("frequency_thaw", 2, settings | early)) == ".AAAAA.."


def test_every_arm_of_a_recipe_has_a_plan() -> None:
    assert list(ARMS) == list(get_args(Arm))


@pytest.mark.parametrize(
    ("arm", "routes"),
    [
        ("contrastive_only", RoutesConfig(head=CLOSED, pairwise=CLOSED, contrastive=OPEN)),
        ("no_contrastive", RoutesConfig(head=OPEN, pairwise=OPEN, contrastive=CLOSED)),
        ("head_only", RoutesConfig(head=OPEN, pairwise=CLOSED, contrastive=CLOSED)),
        ("pairwise_only", RoutesConfig(head=CLOSED, pairwise=OPEN, contrastive=CLOSED)),
        (
            "candidate_only",
            RoutesConfig(**dict.fromkeys(("head", "pairwise", "contrastive"), PathsConfig(history=0.0, user=0.0))),
        ),
        (
            "history_only",
            RoutesConfig(**dict.fromkeys(("head", "pairwise", "contrastive"), PathsConfig(candidate=0.0, user=0.0))),
        ),
        ("meda", RoutesConfig()),
    ],
)
def test_the_routes_of_each_arm(arm: Arm, routes: RoutesConfig) -> None:
    assert plan(arm).routes == routes


@pytest.mark.parametrize("arm", ["single_epoch", "cotrain", "delayed", "adapt_then_freeze", "frequency_thaw"])
def test_other_arms_take_the_recipe_s_routes(arm: Arm) -> None:
    found = plan(arm, settings={"thaw.routes.head.user": "0.5"})
    assert found.routes == RoutesConfig(head=PathsConfig(user=0.5))


def test_remedies_take_their_settings_from_the_recipe() -> None:
    settings = {
        "remedies.full_rate_count": "9",
        "remedies.rate_power": "0.25",
        "remedies.interval_decay": "0.02",
        "remedies.table_rate_scale": "0.125",
        "remedies.row_dropout": "0.3",
        "remedies.row_decay": "0.04",
        "remedies.min_count": "5",
        "remedies.frequent_count": "6",
    }
    assert plan("frequency_lr", settings=settings).row_update == FrequencyRate(full_count=9, power=0.25)
    assert plan("adam_ar", settings=settings).row_update == Shrinkage(share=0.02, by_step=True)
    assert plan("row_decay", settings=settings).row_update == Shrinkage(share=0.04, by_step=False)
    assert plan("slow_tables", settings=settings).rate_scale == 0.125
    assert plan("row_dropout", settings=settings).row_dropout == 0.3
    assert plan("min_count", settings=settings).admission == Admission(rare_below=5, rare_from=math.inf)
    assert plan("frequency_thaw", 3, settings).admission == Admission(rare_below=6, rare_from=2.0)
    assert plan("meda").restores_rows


def alike(first: tuple[Arm, int], second: tuple[Arm, int], settings: Mapping[str, str] | None = None) -> int:
    """Passes that two arms, of so many epochs, have in common."""
    plans = [plan(*arm, settings) for arm in (first, second)]
    shared = min(first[1], second[1])
    return sum(plans[0].through(epoch) == plans[1].through(epoch) for epoch in range(1, shared + 1))


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (("cotrain", 2), ("single_epoch", 1), 1),
        (("cotrain", 2), ("cotrain", 3), 2),
        (("cotrain", 3), ("adapt_then_freeze", 3), 1),
        (("cotrain", 3), ("meda", 3), 1),
        (("cotrain", 3), ("delayed", 3), 0),
        (("delayed", 3), ("frozen", 3), 2),
        (("delayed", 2), ("delayed", 3), 1),
        (("frequency_thaw", 2), ("frozen", 2), 0),
        (("frequency_thaw", 2), ("frequency_thaw", 3), 1),
        (("min_count", 2), ("min_count", 3), 2),
        (("frequency_thaw", 2), ("min_count", 2), 0),
        (("cotrain", 2), ("frequency_lr", 2), 0),
        (("adam_ar", 2), ("row_decay", 2), 0),
        (("cotrain", 2), ("slow_tables", 2), 0),
        (("cotrain", 2), ("row_dropout", 2), 0),
        (("cotrain", 2), ("contrastive_only", 2), 0),
        (("frozen", 2), ("row_dropout", 2), 0),
    ],
)
def test_arms_share_the_passes_in_which_they_do_the_same(
    first: tuple[Arm, int], second: tuple[Arm, int], wanted: int
) -> None:
    assert alike(first, second) == alike(second, first) == wanted
