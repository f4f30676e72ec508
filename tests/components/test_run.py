import shutil
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from components.plan_window.planning import plan, plan_with_files
from components.register.costs import costs_by_step
from components.run import Run, parse_date
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


def test_a_day_comes_with_what_the_log_holds_for_it(tiny_log: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    shutil.copytree(tiny_log, log)
    before = plan_with_files(run_of(log), "window")
    assert [entry["day"] for entry in before] == plan(run_of(log), "window")
    assert plan_with_files(run_of(log), "window") == before
    part = log / "dt=2024-01-07" / "part-00000.parquet"
    part.write_bytes(part.read_bytes() + b"more")
    after = plan_with_files(run_of(log), "window")
    assert [old["day"] for old, new in zip(before, after, strict=True) if old != new] == ["2024-01-07"]
    # Rows may come late, in the next day's folder.
    run = run_of(log, window__late_hours="2")
    before = plan_with_files(run, "window")
    part.write_bytes(part.read_bytes() + b"more")
    after = plan_with_files(run, "window")
    changed = [old["day"] for old, new in zip(before, after, strict=True) if old != new]
    assert changed == ["2024-01-06", "2024-01-07"]


def test_every_shard_of_a_day_is_planned_and_the_newest_day_is_held_out(tiny_log: Path) -> None:
    items = plan_with_files(run_of(tiny_log, window__num_shards="3"), "window")
    assert [(item["day"], item["shard"]) for item in items] == [
        (f"2024-01-0{day}", str(shard)) for day in (5, 6, 7, 8, 9) for shard in range(3)
    ]
    assert {item["day"] for item in items if item["role"] == "heldout"} == {"2024-01-09"}
    assert {item["role"] for item in plan_with_files(run_of(tiny_log), "backbone")} == {"training"}


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2024-01-10", date(2024, 1, 10)),
        ("2024-01-10T06:00:00Z", date(2024, 1, 10)),
        ("2024-01-10T00:30:00+09:00", date(2024, 1, 9)),
        ("2024-01-09T23:30:00-08:00", date(2024, 1, 10)),
    ],
)
def test_a_time_is_of_its_utc_day(text: str, day: date) -> None:
    assert parse_date(text) == day


@pytest.mark.parametrize("text", ["", "2024-02-30", "tomorrow", "{{$.pipeline_job_schedule_time_utc}}"])
def test_what_is_no_day_is_told(text: str) -> None:
    with pytest.raises(InputError, match="not a day; write it as YYYY-MM-DD"):
        parse_date(text)


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
