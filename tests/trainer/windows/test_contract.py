from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.trainer.windows.logs import DAY, columns_of, logs_config, recipe_for, table_of, write_log
from tests.trainer.windows.partitions import read_rows
from trainer.errors import InputError
from trainer.windows.contract import arrow_schema
from trainer.windows.hashing import hash_ids
from trainer.windows.preparation import prepare_day
from trainer.windows.preparing.writing import stored_schema
from trainer.windows.reading import DayReading, inspect_day

Columns = dict[str, list[Any]]
Change = Callable[[Columns], None]


def put(column: str, value: Any, *rows: int) -> Change:
    def change(columns: Columns) -> None:
        for row in rows:
            columns[column][row] = value

    return change


def shift_ts(columns: Columns) -> None:
    columns["ts"][5] += timedelta(days=1)


def add_propensity(columns: Columns) -> None:
    columns["propensity"] = [0.5] * len(columns["ts"])
    columns["propensity"][2] = 0.0


VALUE_VIOLATIONS: dict[str, tuple[Change, str, str, str]] = {
    "null id": (put("user_id", None, 3), "user_id", "row 3", "null"),
    "null label": (put("save", None, 0, 7), "save", "row 0 and 1 more", "null"),
    "negative request": (put("request_id", -4, 9), "request_id", "row 9", "-4 is negative"),
    "negative pin": (put("pin_id", -1, 1, 2, 3), "pin_id", "row 1 and 2 more", "-1 is negative"),
    "negative position": (put("position", -1, 4), "position", "row 4", "-1 is negative"),
    "ts on another day": (shift_ts, "ts", "row 5", "is not on 2024-03-05"),
    "short features": (put("pin_features", [1.0], 8), "pin_features", "row 8", "1 values where the recipe has 3"),
    "long features": (put("user_features", [1.0] * 5, 6), "user_features", "row 6", "5 values where the recipe has 2"),
    "NaN feature": (put("user_features", [1.0, float("nan")], 6), "user_features", "row 6", "NaN"),
    "null feature": (put("user_features", [1.0, None], 6), "user_features", "row 6", "null"),
    "negative history": (put("history", [3, -2], 8, 9), "history", "row 8 and 1 more", "negative"),
    "history lengths": (put("history_actions", [1, 1, 1], 4), "history_actions", "row 4", "3 actions for 1 pins"),
    "null action": (put("history_actions", [None], 4), "history_actions", "row 4", "an action is null"),
    "negative action": (put("history_actions", [-1], 4), "history_actions", "row 4", "an action is null or negative"),
    "propensity": (add_propensity, "propensity", "row 2", "0.0 is not above 0"),
}


def prepare(log: Path, day: date = DAY) -> pa.Table:
    return read_rows(prepare_day(recipe_for(log), day, str(log / "store")))


def test_a_sound_day_passes(tmp_path: Path) -> None:
    write_log(tmp_path)
    assert inspect_day(logs_config(tmp_path), DAY) == DayReading(
        day=DAY,
        num_rows=24,
        num_broken=0,
        num_slates=6,
        num_duplicates=0,
        num_positive={"save": 6, "click": 12},
        problems=(),
        file_problems=(),
        sightings=(),
    )


@pytest.mark.parametrize("name", VALUE_VIOLATIONS)
def test_a_broken_value_gives_one_line_with_its_place(tmp_path: Path, name: str) -> None:
    change, column, row, what = VALUE_VIOLATIONS[name]
    file = write_log(tmp_path, change=change)
    (line,) = inspect_day(logs_config(tmp_path), DAY).problems
    assert line.startswith(f"{file}: column '{column}', {row}: ")
    assert what in line
    assert "; " in line and "\n" not in line


def test_a_missing_column_and_a_wrong_type_name_the_type_to_write(tmp_path: Path) -> None:
    def change(columns: Columns) -> None:
        del columns["click"]

    file = write_log(tmp_path, change=change)
    (line,) = inspect_day(logs_config(tmp_path), DAY).problems
    assert line == f"{file}: column 'click' is missing; add it as bool"

    table = table_of(columns_of())
    wrong = table.set_column(table.column_names.index("ts"), "ts", table["ts"].cast(pa.timestamp("us")))
    pq.write_table(wrong, file)
    (line,) = inspect_day(logs_config(tmp_path), DAY).problems
    assert line == f"{file}: column 'ts' is timestamp[us]; cast it to timestamp[us, tz=UTC]"

    features = pa.array([[1.0, 2.0]] * 24, pa.list_(pa.float64()))
    pq.write_table(table.set_column(table.column_names.index("user_features"), "user_features", features), file)
    (line,) = inspect_day(logs_config(tmp_path), DAY).problems
    assert line == f"{file}: column 'user_features' is list<float64>; cast it to list<float32>"


def test_other_encodings_of_a_type_and_unknown_columns_pass(tmp_path: Path) -> None:
    columns = columns_of() | {"text": [f"title {row}" for row in range(24)], "campaign": list(range(24))}
    table = table_of(columns)
    encodings = {
        "text": pa.dictionary(pa.int32(), pa.string()),
        "history": pa.large_list(pa.int64()),
        "pin_features": pa.list_(pa.float32(), 3),
    }
    for name, kind in encodings.items():
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    (tmp_path / f"dt={DAY}").mkdir()
    pq.write_table(table, tmp_path / f"dt={DAY}" / "logs.parquet")
    assert inspect_day(logs_config(tmp_path), DAY).problems == ()
    found = prepare(tmp_path)
    assert found.schema.equals(stored_schema(arrow_schema(logs_config(""), ["text"])))
    assert sorted(found["text"].to_pylist()) == sorted(columns["text"])


def as_text(columns: Columns, *names: str) -> pa.Table:
    texts: dict[str, list[Any]] = {
        name: [None if value is None else f"id {value}" for value in columns[name]] for name in names
    }
    if "history" in names:
        texts["history"] = [[f"id {pin}" for pin in pins] for pins in columns["history"]]
    table = table_of(columns)
    for name, values in texts.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


def test_ids_that_are_text_are_hashed(tmp_path: Path) -> None:
    (tmp_path / f"dt={DAY}").mkdir()
    names = ("request_id", "user_id", "pin_id", "history")
    pq.write_table(as_text(columns_of(), *names), tmp_path / f"dt={DAY}" / "logs.parquet")
    found = prepare(tmp_path)
    assert found.schema.equals(stored_schema(arrow_schema(logs_config(""))))
    hashed = dict(zip(range(60), hash_ids(pa.array([f"id {pin}" for pin in range(60)])).to_pylist(), strict=True))
    wanted = {(hashed[pin], tuple(hashed[past] for past in range(pin // 10))) for pin in columns_of()["pin_id"]}
    rows = found.select(["pin_id", "history"]).to_pylist()
    assert {(row["pin_id"], tuple(row["history"])) for row in rows} == wanted


def test_ids_that_are_text_in_some_places_only_are_refused(tmp_path: Path) -> None:
    file = write_log(tmp_path)
    pq.write_table(as_text(columns_of(), "pin_id"), file)
    (line,) = inspect_day(logs_config(tmp_path), DAY).problems
    assert line == (
        f"{file}: column 'history' is list<int64> where 'pin_id' of {file} is string; "
        "write all of them as text or all as int64"
    )
    other = file.with_name("part-00001.parquet")
    pq.write_table(table_of(columns_of()), file)
    pq.write_table(as_text(columns_of(), "user_id"), other)
    with pytest.raises(InputError, match=f"{other}: column 'user_id' is string where 'user_id' of {file} is int64"):
        prepare(tmp_path)


def test_every_problem_of_a_day_is_found_and_the_first_is_raised(tmp_path: Path) -> None:
    def change(columns: Columns) -> None:
        del columns["click"]
        columns["pin_id"][3] = -1
        columns["ts"][0] -= timedelta(days=2)

    write_log(tmp_path, change=change)
    problems = inspect_day(logs_config(tmp_path), DAY).problems
    assert [line.split("'")[1] for line in problems] == ["click", "pin_id", "ts"]
    with pytest.raises(InputError, match=r"'click' is missing; add it as bool$"):
        prepare(tmp_path)

    def break_values(columns: Columns) -> None:
        put("pin_id", -1, 3)(columns)
        shift_ts(columns)

    write_log(tmp_path, change=break_values)
    with pytest.raises(InputError, match=r"'pin_id', row 3: .* \(1 more problems: `thawline data check` lists them\)$"):
        prepare(tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "not parquet", "empty", "flipped bits"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    file = write_log(tmp_path)
    content = file.read_bytes()
    middle = len(content) // 3
    damaged = {
        "truncated": content[: len(content) // 2],
        "not parquet": b"request_id,user_id\n1,2\n",
        "empty": b"",
        "flipped bits": content[:middle]
        + bytes(255 - byte for byte in content[middle : middle + 8])
        + content[middle + 8 :],
    }
    file.write_bytes(damaged[damage])
    (line,) = inspect_day(logs_config(tmp_path), DAY).problems
    assert line.startswith(f"{file}: cannot be read as Parquet (")
    assert "\n" not in line
    with pytest.raises(InputError) as caught:
        prepare(tmp_path)
    assert str(caught.value) == line


def test_an_extra_column_must_be_in_every_file_of_a_day(tmp_path: Path) -> None:
    write_log(tmp_path)
    other = tmp_path / f"dt={DAY}" / "part-00001.parquet"
    pq.write_table(table_of(columns_of() | {"text": ["title"] * 24}), other)
    (line,) = inspect_day(logs_config(tmp_path), DAY).problems
    assert line == f"{tmp_path}/dt={DAY}/part-00000.parquet: column 'text' is missing; add it as string"


def test_an_empty_day_and_a_day_that_is_not_there(tmp_path: Path) -> None:
    write_log(tmp_path, change=lambda columns: columns.update({name: [] for name in columns}))
    (line,) = inspect_day(logs_config(tmp_path), DAY).problems
    assert line == f"{tmp_path}/dt={DAY}: the day has no rows; write it again or choose another date"
    for read in (lambda log, day: inspect_day(logs_config(log), day), prepare):
        with pytest.raises(InputError, match=rf"no logs for 2024-03-06 .*; the newest day there is {DAY}; "):
            read(tmp_path, DAY + timedelta(days=1))
        with pytest.raises(InputError, match="no such folder"):
            read(tmp_path / "elsewhere", DAY)
    with pytest.raises(InputError, match=f"dt={DAY}: the day has no rows; "):
        prepare(tmp_path)
