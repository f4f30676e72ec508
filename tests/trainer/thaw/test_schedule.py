import math
from typing import get_args

import pytest

from trainer.recipe import Arm, ThawConfig
from trainer.thaw.arms import ARMS, schedule_of

QUARTERS = tuple(quarter / 4 for quarter in range(12))


def phases(config: ThawConfig) -> str:
    """One letter a quarter epoch, A where tables adapt and . where they are frozen, for as long as the arm trains."""
    schedule = schedule_of(config)
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
    ],
)
def test_when_each_arm_adapts(arm: Arm, num_epochs: int, wanted: str, thaw_epoch: float | None) -> None:
    config = ThawConfig(arm=arm, num_epochs=num_epochs)
    assert phases(config) == wanted
    assert schedule_of(config).num_epochs == len(wanted) // 4
    assert schedule_of(config).thaw_epoch == thaw_epoch


@pytest.mark.parametrize(
    ("thaw_point", "num_epochs", "wanted"),
    [(0.0, 1, "AAAA"), (0.5, 1, "..AA"), (0.6, 1, "...A"), (1.0, 2, "....AAAA"), (1.25, 3, ".....AAAAAAA")],
)
def test_a_thaw_point_may_be_a_fraction(thaw_point: float, num_epochs: int, wanted: str) -> None:
    config = ThawConfig(arm="delayed", num_epochs=num_epochs, thaw_point=thaw_point)
    assert phases(config) == wanted
    assert schedule_of(config).thaw_epoch == (thaw_point or None)


def test_the_step_that_begins_at_the_thaw_point_adapts() -> None:
    schedule = schedule_of(ThawConfig(arm="delayed", num_epochs=2, thaw_point=1.0))
    assert not schedule.adapts_at(math.nextafter(1.0, 0))
    assert schedule.adapts_at(1.0)


def test_every_arm_of_a_recipe_has_a_schedule() -> None:
    assert set(ARMS) == set(get_args(Arm))
