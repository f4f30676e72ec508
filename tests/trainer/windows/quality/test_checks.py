"""Each check finds what is planted for it and says nothing of an ordinary day."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.windows.quality.days import (
    FIRST_DAY,
    NUM_DAYS,
    RECIPE,
    SLATE_SIZE,
    Columns,
    columns_of,
    days_of,
    facts_of,
    table_of,
)
from trainer.recipe import QualityConfig, Recipe
from trainer.windows.quality.report import QualityReport, judge


def breaches(report: QualityReport) -> set[tuple[str, str]]:
    return {(finding.check, finding.column) for finding in report.breaches}


def strict(**limits: Any) -> Recipe:
    return replace(RECIPE, quality=QualityConfig(**limits))


def keep(columns: Columns, rows: Any) -> None:
    for name, values in columns.items():
        columns[name] = values[rows]


def lose_rows(columns: Columns) -> None:
    keep(columns, slice(0, 200 * SLATE_SIZE))
    columns["ts"] = columns["ts"][0] // 86_400_000_000 * 86_400_000_000 + np.linspace(0, 86_399e6, 1000).astype(int)


def lose_hours(columns: Columns) -> None:
    hours = columns["ts"] // 3_600_000_000 % 24
    keep(columns, (hours < 9) | (hours > 10))


def lose_saves(columns: Columns) -> None:
    columns["save"] &= np.arange(len(columns["save"])) % 4 == 0


def scale_feature(columns: Columns) -> None:
    columns["user_features"][:, 1] *= 3.0


def zero_feature(columns: Columns) -> None:
    columns["user_features"][:, 0] = 0.0


def mark_missing(columns: Columns) -> None:
    columns["pin_features"][7, 0] = -999.0


def flip_flag(columns: Columns) -> None:
    columns["pin_features"][:, 1] = 1.0 - columns["pin_features"][:, 1]


def renumber_pins(columns: Columns) -> None:
    columns["pin_id"] = columns["pin_id"] + 10**9


def clear_histories(columns: Columns) -> None:
    columns["history_length"][:] = 0


PLANTS = {
    "volume": (lose_rows, {("volume", "")}),
    "hours": (lose_hours, {("empty_hours", "ts")}),
    "labels": (lose_saves, {("label_rate", "save")}),
    "scale": (scale_feature, {("drift", "user_features[1]"), ("range", "user_features[1]")}),
    "zeros": (zero_feature, {("drift", "user_features[0]")}),
    "default": (mark_missing, {("range", "pin_features[0]")}),
    "flag": (flip_flag, {("drift", "pin_features[1]")}),
    "pins": (renumber_pins, {("new_pins", "pin_id")}),
    "histories": (clear_histories, {("drift", "history_length")}),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_plant_is_found_and_nothing_else(plant: str) -> None:
    change, expected = PLANTS[plant]
    report = judge(RECIPE, days_of(change=change))
    assert breaches(report) == expected
    assert report.verdict == "warn"
    assert {finding.day for finding in report.breaches} == {FIRST_DAY.replace(day=NUM_DAYS)}


@pytest.mark.parametrize("seed", range(5))
def test_an_ordinary_day_is_in_order(seed: int) -> None:
    report = judge(RECIPE, days_of(seed))
    assert not report.breaches, [finding.line for finding in report.breaches]
    assert report.verdict == "ok"
    checks = {finding.check for finding in report.findings}
    assert checks == {
        *("schema", "volume", "empty_hours", "label_rate", "nulls", "duplicates", "quarantine", "new_pins"),
        *("range", "drift", "mean"),
    }


@pytest.mark.parametrize(
    ("dropped", "check"), [({"num_duplicates": 100}, "duplicates"), ({"num_quarantined": 5}, "quarantine")]
)
def test_dropped_rows_are_held_against_what_is_usual(dropped: dict[str, int], check: str) -> None:
    report = judge(RECIPE, days_of(change=None, **dropped))
    assert breaches(report) == {(check, "")}
    chronic = [facts_of(number, table_of(columns_of(0, number)), **dropped) for number in range(NUM_DAYS)]
    assert not judge(RECIPE, chronic).breaches


def test_a_shift_that_the_bins_do_not_see_shows_in_the_mean() -> None:
    """Far from zero, bins are wide: 1000 plus or minus 5 is all in one."""

    days = []
    for number in range(NUM_DAYS):
        columns = columns_of(0, number)
        moved = 5.0 if number == NUM_DAYS - 1 else 0.0
        columns["user_features"][:, 0] = 1000.0 + 5 * columns["user_features"][:, 0] + moved
        days.append(facts_of(number, table_of(columns)))
    assert breaches(judge(RECIPE, days)) == {("mean", "user_features[0]")}


def raw_columns_of_last(days: list[Any], change: Callable[[pa.Schema], list[pa.Schema]]) -> None:
    profile = days[-1].profile
    schema = table_of(columns_of(0, 0)).schema
    profile.raw_columns.clear()
    profile.num_files = 0
    for file in change(schema):
        profile.add_file(file)


@pytest.mark.parametrize(
    ("change", "column", "words"),
    [
        (lambda schema: [schema.append(pa.field("boost", pa.float32()))], "boost", "is new"),
        (lambda schema: [schema.remove(schema.get_field_index("position"))], "position", "is gone"),
        (lambda schema: [schema, schema.remove(4)], "position", "missing in some files"),
        (
            lambda schema: [schema.set(1, pa.field("user_id", pa.string()))],
            "user_id",
            "is string, usually int64",
        ),
    ],
    ids=["gained", "lost", "lost in one file", "changed"],
)
def test_columns_gained_lost_or_changed(
    change: Callable[[pa.Schema], list[pa.Schema]], column: str, words: str
) -> None:
    days = days_of()
    raw_columns_of_last(days, change)
    report = judge(RECIPE, days)
    assert breaches(report) == {("schema", column)}
    assert words in report.breaches[0].message


def test_nulls_that_grow_are_told() -> None:
    table = table_of(columns_of(0, NUM_DAYS - 1))
    days = [*days_of()[:-1], facts_of(NUM_DAYS - 1, table)]
    days[-1].profile.num_nulls["text"] = table.num_rows // 20
    assert breaches(judge(RECIPE, days)) == {("nulls", "text")}
    for facts in days:
        facts.profile.num_nulls["text"] = facts.profile.num_rows // 20
    assert not judge(RECIPE, days).breaches


def test_an_odd_day_stays_odd_while_it_is_new_and_hides_no_other() -> None:
    days = days_of(change=lose_rows)
    two_of_nine = [*days[:4], days[-1], *days[5:8], days[-1]]
    two_of_nine = [replace(facts, day=days[0].day.replace(day=1 + n)) for n, facts in enumerate(two_of_nine)]
    assert ("volume", "") in breaches(judge(RECIPE, two_of_nine))
    then_a_good_one = [*days[1:], facts_of(NUM_DAYS, table_of(columns_of(0, NUM_DAYS)))]
    report = judge(RECIPE, then_a_good_one)
    assert {(finding.check, finding.day.day) for finding in report.breaches} == {("volume", NUM_DAYS)}


def test_what_the_same_day_of_the_week_before_had_is_usual_too() -> None:
    days = days_of(change=lose_rows)
    assert ("volume", "") in breaches(judge(RECIPE, days))
    week_before = replace(days[-1], day=days[1].day)
    assert ("volume", "") not in breaches(judge(RECIPE, [days[0], week_before, *days[2:]]))


def test_a_recipe_may_stop() -> None:
    days = days_of(change=lose_saves)
    assert judge(strict(on_breach="stop"), days).verdict == "stop"
    assert judge(strict(on_breach="stop", max_label_change=0.9), days).verdict == "ok"
    assert judge(strict(on_breach="stop"), days_of()).verdict == "ok"


def test_a_day_with_too_few_before_it_is_not_judged() -> None:
    days = days_of(change=lose_saves)
    report = judge(strict(num_days=4, min_trailing_days=7), days)
    assert (report.judged, report.unjudged) == (("2024-03-08", "2024-03-09"), ("2024-03-06", "2024-03-07"))
    none = judge(RECIPE, days[-3:])
    assert (none.verdict, none.judged, none.findings) == ("ok", (), ())


def test_a_day_without_rows_is_told_and_breaks_nothing() -> None:
    empty = facts_of(NUM_DAYS - 1, table_of(columns_of(0, NUM_DAYS - 1)).slice(0, 0))
    found = breaches(judge(RECIPE, [*days_of()[:-1], empty]))
    assert found == {("volume", ""), ("empty_hours", "ts")}


def test_labels_that_no_row_has_are_in_order() -> None:
    days = []
    for number in range(NUM_DAYS):
        columns = columns_of(0, number)
        columns["save"][:] = False
        days.append(facts_of(number, table_of(columns)))
    assert not judge(RECIPE, days).breaches
