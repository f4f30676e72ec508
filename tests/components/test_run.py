from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from components.plan_window.planning import plan
from components.register.costs import costs_by_step
from components.run import Run
from components.step import StepEvent
from pipelines.recipes import synthetic
from trainer.errors import InputError
from trainer.registry.summary import StepCost


def run_of(log: Path, date_: date = date(2024, 1, 10), **settings: str) -> Run:
    recipe = synthetic().override(
        {"logs.uri": str(log), "window.num_days": "4", "backbone.num_days": "4"}
        | {key.replace("__", "."): value for key, value in settings.items()}
    )
    return Run(recipe=recipe, date=date_, store="store")


def test_the_window_ends_with_the_held_out_day(tiny_log: Path) -> None:
    assert plan(run_of(tiny_log), "window") == [f"2024-01-0{day}" for day in (5, 6, 7, 8, 9)]


def test_the_backbone_saw_no_day_of_the_window(tiny_log: Path) -> None:
    assert plan(run_of(tiny_log), "backbone") == [f"2024-01-0{day}" for day in (1, 2, 3, 4)]


def test_a_day_without_logs_is_told_with_what_there_is(tiny_log: Path) -> None:
    with pytest.raises(InputError, match=r"no logs for 2024-01-10.*2024-01-01 to 2024-01-09.*--date"):
        plan(run_of(tiny_log, date(2024, 1, 11)), "window")
    with pytest.raises(InputError, match=r"no logs for 2023-12-31.*backbone\.num_days"):
        plan(run_of(tiny_log, backbone__num_days="5"), "backbone")


def test_the_key_changes_with_all_that_a_retrain_reads(tiny_log: Path) -> None:
    run = run_of(tiny_log)
    others = [
        run.key("other", "1"),
        run.key("digest", "2"),
        run_of(tiny_log, run.date + timedelta(days=1)).key("digest", "1"),
        run_of(tiny_log, training__seed="5").key("digest", "1"),
    ]
    assert len({run.key("digest", "1"), *others}) == 5
    assert replace(run, store="elsewhere").key("digest", "1") == run.key("digest", "1")


def event(step: str, part: str, started_at_s: float, duration_s: float, peak_rss_mib: float = 1.0) -> StepEvent:
    return StepEvent(
        step=step,
        part=part,
        state="finished",
        started_at_s=started_at_s,
        duration_s=duration_s,
        peak_rss_mib=peak_rss_mib,
    )


def test_parts_side_by_side_are_counted_once() -> None:
    events = [
        event("plan", "", 0, 1),
        event("prepare", "a", 10, 4, peak_rss_mib=7),
        event("prepare", "b", 12, 4, peak_rss_mib=9),
        event("prepare", "c", 30, 2),
    ]
    assert costs_by_step(events) == {
        "plan": StepCost(duration_s=1, peak_rss_mib=1),
        "prepare": StepCost(duration_s=8, peak_rss_mib=9),
    }
