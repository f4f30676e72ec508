"""Days prepared in many buckets, files, chunks and shards against the whole day at once, row by row in plain Python."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.windows.logs import DAY, recipe_for, table_of
from tests.trainer.windows.partitions import read_rows
from trainer.errors import InputError
from trainer.recipe import Recipe
from trainer.windows import preparation
from trainer.windows.contract import WEIGHT
from trainer.windows.manifest import load_partition
from trainer.windows.mixing import mix64
from trainer.windows.preparation import prepare_day
from trainer.windows.preparing import scan, writing

Row = dict[str, Any]
MIDNIGHT = datetime.combine(DAY, datetime.min.time(), UTC)
SEED = 17

BASE: Row = {
    "request_id": 0,
    "user_id": 1,
    "pin_id": 2,
    "ts": MIDNIGHT,
    "position": 0,
    "save": True,
    "click": False,
    "user_features": [1.0, 2.0],
    "pin_features": [1.0, 2.0, 3.0],
    "history": [],
    "history_actions": [],
}
COLUMNS = tuple(BASE)

SMALL = st.integers(0, 5)
HISTORIES = st.lists(st.tuples(SMALL, st.integers(0, 3)), max_size=4)
FLOATS = st.sampled_from([0.0, -1.5, 3.25, 2.0**99])


@st.composite
def rows_of(draw: st.DrawFn, day: date = DAY) -> Row:
    history = draw(HISTORIES)
    return {
        "request_id": draw(SMALL),
        "user_id": draw(SMALL),
        "pin_id": draw(SMALL),
        "ts": datetime.combine(day, datetime.min.time(), UTC) + timedelta(seconds=draw(SMALL)),
        "position": draw(SMALL),
        "save": draw(st.booleans()),
        "click": draw(st.booleans()),
        "user_features": [draw(FLOATS), draw(FLOATS)],
        "pin_features": [draw(FLOATS), 1.0, 2.0],
        "history": [pin for pin, _ in history],
        "history_actions": [action for _, action in history],
    }


BREAKS: dict[str, Mapping[str, Any]] = {
    "pin_id: negative": {"pin_id": -1},
    "user_id: null": {"user_id": None},
    "request_id: null": {"request_id": None},
    "user_features: length": {"user_features": [1.0]},
    "pin_features: not finite": {"pin_features": [1.0, float("nan"), 2.0]},
    "history: null or negative": {"history": [None], "history_actions": [1]},
    "history_actions: length": {"history": [], "history_actions": [1]},
    "ts: another day": {"ts": MIDNIGHT + timedelta(days=1)},
}


@st.composite
def maybe_broken_rows(draw: st.DrawFn) -> Row:
    reason = draw(st.none() | st.none() | st.sampled_from(sorted(BREAKS)))
    row = draw(rows_of())
    return {**row, **BREAKS[reason], "reason": reason} if reason else {**row, "reason": None}


FILES = st.lists(st.lists(maybe_broken_rows(), max_size=25), min_size=1, max_size=3)


def word(number: int) -> int:
    return int(mix64(np.array([number % 2**64], np.uint64))[0])


def naive(rows: Sequence[Row]) -> list[Row]:
    """A day prepared at once: the newest row of each slate and pin, in the order of the slates' words."""
    newest: dict[tuple[int, int], Row] = {}
    for row in rows:
        key = row["request_id"], row["pin_id"]
        if key not in newest or newest[key]["ts"] <= row["ts"]:
            newest[key] = row
    return sorted(
        newest.values(), key=lambda row: (word(row["request_id"] + word(SEED)), row["position"], row["pin_id"])
    )


def without_reason(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "reason"}


def write(log: Path, day: date, files: Sequence[Sequence[Row]]) -> None:
    folder = log / f"dt={day}"
    folder.mkdir(parents=True)
    for number, rows in enumerate(files):
        table = table_of({name: [row[name] for row in rows] for name in COLUMNS})
        pq.write_table(table, folder / f"part-{number:05}.parquet", row_group_size=7)


@contextmanager
def sizes(*, bucket_bytes: int, chunk_rows: int) -> Iterator[Path]:
    """A folder, and a preparation that works in small parts."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(preparation, "BUCKET_BYTES", bucket_bytes)
        patch.setattr(scan, "CHUNK_ROWS", chunk_rows)
        patch.setattr(writing, "ROW_GROUP_ROWS", 4)
        patch.setattr(writing, "FILE_ROWS", 8)
        yield Path(folder)


def recipe_of(log: Path, **window: str) -> Recipe:
    lenient = {"window.max_quarantined_share": "0.99"}
    return recipe_for(log).override(lenient | {f"window.{name}": value for name, value in window.items()})


def content_of(partition: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(partition) / "partition.json").read_text())
    return content


def rows_in(partition: str) -> list[Row]:
    return read_rows(partition).to_pylist() if load_partition(partition).files else []


def quarantined(partition: str) -> list[Row]:
    entry = content_of(partition)["quarantine"]
    return pq.read_table(Path(partition) / entry["name"]).to_pylist() if entry else []


@settings(deadline=None, max_examples=40)
@given(FILES, st.sampled_from([200, 1000, 10**9]), st.sampled_from([3, 1000]), st.sampled_from([1, 2, 3]))
def test_any_number_of_parts_gives_the_rows_of_the_whole_day_at_once(
    files: list[list[Row]], bucket_bytes: int, chunk_rows: int, num_shards: int
) -> None:
    rows = [row for of_file in files for row in of_file]
    sound = [without_reason(row) for row in rows if row["reason"] is None]
    if len(sound) < 1 or (len(rows) - len(sound)) > 0.99 * len(rows):
        return
    with sizes(bucket_bytes=bucket_bytes, chunk_rows=chunk_rows) as folder:
        write(folder / "log", DAY, files)
        recipe = recipe_of(folder / "log", num_shards=str(num_shards))
        shards = [prepare_day(recipe, DAY, str(folder / "store"), shard=shard) for shard in range(num_shards)]
        found = [row for shard in shards for row in rows_in(shard)]
        assert found == naive(sound)
        contents = [content_of(shard) for shard in shards]
        counts = [content["filters"] for content in contents]
        assert sum(of["num_raw_rows"] for of in counts) == len(rows)
        assert sum(of["num_duplicates"] for of in counts) == len(sound) - len(found)
        assert sum(content["num_slates"] for content in contents) == len({row["request_id"] for row in sound})
        broken = [row for shard in shards for row in quarantined(shard)]
        wanted = [
            (row["reason"], str(folder / "log" / f"dt={DAY}" / f"part-{number:05}.parquet"), place)
            for number, of_file in enumerate(files)
            for place, row in enumerate(of_file)
            if row["reason"]
        ]
        assert sorted((row["reason"], row["file"], row["row"]) for row in broken) == sorted(wanted)
        assert sum(of["num_quarantined"] for of in counts) == len(wanted)
        assert sum(sum(of["quarantined"].values()) for of in counts) == len(wanted)
        assert [content.get("shard") for content in contents] == (
            [[shard, num_shards] for shard in range(num_shards)] if num_shards > 1 else [None]
        )


@settings(deadline=None, max_examples=15)
@given(st.lists(rows_of(), min_size=1, max_size=60), st.sampled_from([300, 10**9]))
def test_negatives_are_sampled_with_weights_and_never_held_out(rows: list[Row], bucket_bytes: int) -> None:
    with sizes(bucket_bytes=bucket_bytes, chunk_rows=9) as folder:
        write(folder / "log", DAY, [rows])
        recipe, store = recipe_of(folder / "log", negative_rate="0.25"), str(folder / "store")
        whole = prepare_day(recipe, DAY, store, is_heldout=True)
        sampled = prepare_day(recipe, DAY, store)
        assert whole != sampled
        assert rows_in(whole) == naive(rows)
        assert whole == prepare_day(recipe_of(folder / "log"), DAY, store), "held out or not, all rows are all rows"
        found = rows_in(sampled)
        for row in found:
            assert row.pop(WEIGHT) == (1.0 if row["save"] or row["click"] else 4.0)
        kept = [row for row in naive(rows) if row in found]
        assert kept == found
        assert [row for row in naive(rows) if row["save"] or row["click"]] == [
            row for row in found if row["save"] or row["click"]
        ]
        content = content_of(sampled)
        assert content["filters"]["num_dropped_negatives"] == len(naive(rows)) - len(found)
        assert content["profile"] == content_of(whole)["profile"], "profiles tell of the log, not of the sample"


def at(row: Row, request: int, ts: datetime) -> Row:
    return {**row, "request_id": request, "ts": ts, "pin_id": request}


def test_late_rows_come_to_their_own_day(tmp_path: Path) -> None:
    log, store = tmp_path / "log", str(tmp_path / "store")
    next_day, next_midnight = DAY + timedelta(days=1), MIDNIGHT + timedelta(days=1)
    write(log, DAY, [[at(BASE, 1, MIDNIGHT), at(BASE, 2, MIDNIGHT)]])
    recipe = recipe_of(log, late_hours="3")
    alone = prepare_day(recipe, DAY, store)
    assert {row["request_id"] for row in rows_in(alone)} == {1, 2}

    # Files without late rows change nothing.
    write(log, next_day, [[at(BASE, number, next_midnight) for number in range(5, 9)]])
    assert prepare_day(recipe, DAY, store) == alone

    newer = {**at(BASE, 2, next_midnight - timedelta(hours=1)), "save": False}
    ancient = at(BASE, 4, next_midnight - timedelta(hours=4))
    rows = [newer, at(BASE, 3, next_midnight - timedelta(hours=3)), ancient, at(BASE, 9, next_midnight)]
    table = table_of({name: [row[name] for row in rows] for name in COLUMNS})
    pq.write_table(table, log / f"dt={next_day}" / "part-00001.parquet")
    whole = prepare_day(recipe, DAY, store)
    assert whole != alone
    assert rows_in(whole) == naive([at(BASE, 1, MIDNIGHT), newer, rows[1]])
    content = content_of(whole)
    assert [entry["name"] for entry in content["inputs"]] == ["part-00000.parquet"]
    assert [entry["name"] for entry in content["late_inputs"]] == ["part-00001.parquet"]
    assert content["filters"]["num_raw_rows"] == 4
    assert rows_in(alone), "the old version stays"

    following = prepare_day(recipe, next_day, store)
    assert {row["request_id"] for row in rows_in(following)} == {5, 6, 7, 8, 9}
    filters = content_of(following)["filters"]
    assert (filters["num_left_to_the_day_before"], filters["quarantined"]) == (2, {"ts: too late": 1})


def test_files_of_the_next_day_without_statistics_are_looked_into(tmp_path: Path) -> None:
    log, store = tmp_path / "log", str(tmp_path / "store")
    next_day, next_midnight = DAY + timedelta(days=1), MIDNIGHT + timedelta(days=1)
    write(log, DAY, [[at(BASE, 1, MIDNIGHT)]])
    (log / f"dt={next_day}").mkdir()
    for name, ts in (("late", next_midnight - timedelta(minutes=1)), ("own", next_midnight)):
        table = table_of({column: [at(BASE, 2, ts)[column]] for column in COLUMNS})
        pq.write_table(table, log / f"dt={next_day}" / f"{name}.parquet", write_statistics=False)
    content = content_of(prepare_day(recipe_of(log, late_hours="1"), DAY, store))
    assert [entry["name"] for entry in content["late_inputs"]] == ["late.parquet"]
    assert content["num_rows"] == 2


def test_too_many_broken_rows_stop_the_day_and_few_do_not(tmp_path: Path) -> None:
    rows = [at(BASE, number, MIDNIGHT) for number in range(1000)]
    rows[3], rows[700] = {**rows[3], "user_id": -7}, {**rows[700], "user_id": -8}
    write(tmp_path / "log", DAY, [rows[:500], rows[500:]])
    recipe = recipe_for(tmp_path / "log")
    told = r"part-00000.parquet: column 'user_id', row 3: -7 is negative; map it to 0 or more \(1 more problems: "
    with pytest.raises(InputError, match=told):
        prepare_day(recipe, DAY, str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()
    partition = prepare_day(recipe.override({"window.max_quarantined_share": "0.002"}), DAY, str(tmp_path / "store"))
    assert load_partition(partition).num_rows == 998
    assert [(row["row"], row["user_id"]) for row in quarantined(partition)] == [(3, -7), (200, -8)]


def test_row_groups_are_full_and_end_with_a_slate_but_for_the_last_of_a_file(tmp_path: Path) -> None:
    rows = [{**at(BASE, number, MIDNIGHT), "request_id": number // 3} for number in range(60)]
    with sizes(bucket_bytes=400, chunk_rows=10) as folder:
        write(folder / "log", DAY, [rows])
        partition = load_partition(prepare_day(recipe_of(folder / "log"), DAY, str(folder / "store")))
        files = [pq.ParquetFile(file) for file in partition.files]
        assert len(files) > 3
        groups = [[file.read_row_group(number) for number in range(file.num_row_groups)] for file in files]
        for *full, last in groups:
            assert [group.num_rows for group in full] == [6] * len(full)
            assert 0 < last.num_rows <= 6
        slates = [group["request_id"].unique().to_pylist() for of in groups for group in of]
        assert sorted(slate for of in slates for slate in of) == list(range(20))


def test_lists_of_a_prepared_day_say_that_they_hold_no_nulls(tmp_path: Path) -> None:
    write(tmp_path / "log", DAY, [[at(BASE, 1, MIDNIGHT)]])
    partition = load_partition(prepare_day(recipe_of(tmp_path / "log"), DAY, str(tmp_path / "store")))
    schema = pq.read_schema(partition.files[0])
    assert not any(schema.field(name).type.value_field.nullable for name in ("history", "pin_features"))


def test_text_that_collides_is_counted(tmp_path: Path) -> None:
    write(tmp_path / "log", DAY, [[at(BASE, 1, MIDNIGHT)]])
    path = tmp_path / "log" / f"dt={DAY}" / "part-00000.parquet"
    table = pq.read_table(path)
    for name, kind in (("pin_id", pa.string()), ("history", pa.list_(pa.string()))):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    pq.write_table(table, path)
    content = content_of(prepare_day(recipe_of(tmp_path / "log"), DAY, str(tmp_path / "store")))
    assert content["ids"]["pin_id"]["num_distinct"] == 1
    assert content["ids"]["pin_id"]["text_collisions"] == 0
