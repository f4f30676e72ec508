import math

import pytest

from trainer.recipe import GroupConfig
from trainer.thaw.schedule import GroupSchedule, ThawSchedule


def test_the_step_that_begins_at_the_thaw_point_adapts_and_that_at_the_freeze_point_does_not() -> None:
    schedule = ThawSchedule(num_epochs=3, adapt_from=1.0, adapt_until=2.5)
    assert not schedule.adapts_at(math.nextafter(1.0, 0))
    assert schedule.adapts_at(1.0)
    assert schedule.adapts_at(math.nextafter(2.5, 0))
    assert not schedule.adapts_at(2.5)


@pytest.mark.parametrize(("adapt_from", "wanted"), [(0.0, None), (0.5, 0.5), (1.0, 1.0), (2.0, None), (math.inf, None)])
def test_a_thaw_needs_frozen_steps_before_it_and_adapting_ones_after(adapt_from: float, wanted: float | None) -> None:
    assert ThawSchedule(num_epochs=2, adapt_from=adapt_from).thaw_epoch == wanted


def group(num_epochs: int = 2, **settings: object) -> GroupSchedule:
    config = GroupConfig(**{"learning_rate": 0.5, **settings})  # type: ignore[arg-type]
    return GroupSchedule.of(config, num_epochs=num_epochs)


def test_a_group_trains_throughout_unless_told_otherwise() -> None:
    schedule = group()
    assert all(schedule.adapts_at(at) and schedule.learning_rate_at(at) == 0.5 for at in (0.0, 0.9, 1.0, 1.99))


def test_a_group_thaws_and_freezes_where_its_section_says() -> None:
    schedule = group(thaw_point=0.5, freeze_point=1.5)
    assert [schedule.adapts_at(at) for at in (0.0, 0.49, 0.5, 1.49, 1.5, 1.9)] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_a_warm_up_rises_from_zero_at_the_thaw() -> None:
    schedule = group(thaw_point=0.5, warmup_epochs=0.5)
    found = [schedule.learning_rate_at(at) for at in (0.5, 0.625, 0.75, 1.0, 1.5)]
    assert found == pytest.approx([0.0, 0.125, 0.25, 0.5, 0.5])


@pytest.mark.parametrize(
    ("decay", "shares"),
    [
        ("none", [1.0, 1.0, 1.0]),
        ("linear", [1.0, 0.75, 0.5]),
        ("cosine", [1.0, 0.5 * (1 + math.cos(math.pi / 4)), 0.5]),
    ],
)
def test_a_decay_ends_at_the_run_s_end(decay: str, shares: list[float]) -> None:
    schedule = group(num_epochs=3, warmup_epochs=1.0, decay=decay)
    found = [schedule.learning_rate_at(at) for at in (1.0, 1.5, 2.0)]
    assert found == pytest.approx([0.5 * share for share in shares])
    assert schedule.learning_rate_at(math.nextafter(3.0, 0)) == pytest.approx(0.5 if decay == "none" else 0.0, abs=1e-6)


def test_a_decay_ends_at_the_freeze_when_that_comes_first() -> None:
    schedule = group(num_epochs=3, thaw_point=1.0, freeze_point=2.0, decay="linear")
    found = [schedule.learning_rate_at(at) for at in (1.0, 1.25, 1.75)]
    assert found == pytest.approx([0.5, 0.375, 0.125])


def test_a_warm_up_may_outlast_the_run() -> None:
    schedule = group(num_epochs=1, warmup_epochs=4.0, decay="linear")
    assert [schedule.learning_rate_at(at) for at in (0.0, 0.5)] == pytest.approx([0.0, 0.0625])
