import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.windows.quality.days import LOGS, columns_of, table_of
from trainer.windows.quality.profile import DayProfile

COLUMNS = columns_of(3, 0, num_slates=40)
TABLE = table_of(COLUMNS)


def plain(profile: DayProfile) -> dict[str, Any]:
    """As JSON, with sums rounded: floating-point sums depend on their order."""
    content: dict[str, Any] = json.loads(json.dumps(profile.to_json()))
    for columns in content["values"].values():
        for column in columns:
            for name in ("sum", "sum_of_squares"):
                column[name] = pytest.approx(column[name], rel=1e-9, abs=1e-9)
    return content


def profile_of(table: pa.Table) -> DayProfile:
    profile = DayProfile(LOGS)
    profile.add(table)
    return profile


def test_a_profile_says_what_the_rows_are() -> None:
    profile = profile_of(TABLE)
    rows = len(COLUMNS["save"])
    assert profile.num_rows == rows
    assert profile.num_positive == {"save": COLUMNS["save"].sum()}
    hours = (COLUMNS["ts"] - COLUMNS["ts"].min() // 86_400_000_000 * 86_400_000_000) // 3_600_000_000
    assert (profile.rows_by_hour == np.bincount(hours, minlength=24)).all()
    assert profile.users.num_distinct == len(np.unique(COLUMNS["user_id"]))
    assert profile.pins.num_distinct == len(np.unique(COLUMNS["pin_id"]))
    assert set(profile.num_nulls) == set(TABLE.column_names)
    assert not any(profile.num_nulls.values())
    lengths = profile.values["history_length"]
    assert lengths.moments(0)[0] == pytest.approx(COLUMNS["history_length"].mean())
    features = profile.values["pin_features"]
    assert features.highs_F.tolist() == COLUMNS["pin_features"].max(axis=0).tolist()
    assert set(profile.values) == {"user_features", "pin_features", "position", "history_length"}


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 90), st.booleans()), max_size=8))
def test_chunks_shards_and_json_change_nothing(cuts: list[tuple[int, bool]]) -> None:
    shards = [DayProfile(LOGS), DayProfile(LOGS)]
    start = 0
    for size, which in [*cuts, (TABLE.num_rows, False)]:
        shards[which].add(TABLE.slice(start, size))
        start += size
    whole = DayProfile(LOGS)
    for shard in shards:
        whole.merge(DayProfile.from_json(LOGS, json.loads(json.dumps(shard.to_json()))))
    assert plain(whole) == plain(profile_of(TABLE))


def test_nulls_and_optional_columns_are_counted() -> None:
    propensity = pa.array(np.linspace(0.1, 1.0, TABLE.num_rows), pa.float32())
    text = pa.array([None if number % 4 == 0 else "a" for number in range(TABLE.num_rows)])
    profile = profile_of(TABLE.append_column("propensity", propensity).append_column("text", text))
    assert profile.num_nulls["text"] == -(-TABLE.num_rows // 4)
    assert profile.values["propensity"].highs_F[0] == 1.0


def test_raw_columns_tell_what_differs_between_files() -> None:
    profile = DayProfile(LOGS)
    profile.add_file(pa.schema({"a": pa.int64(), "b": pa.string()}))
    profile.add_file(pa.schema({"a": pa.int32(), "c": pa.bool_()}))
    assert profile.raw_columns == {"a": ["int32", "int64"], "b": ["missing", "string"], "c": ["bool", "missing"]}
    other = DayProfile(LOGS)
    other.add_file(pa.schema({"a": pa.int64(), "d": pa.bool_()}))
    other.merge(profile)
    assert other.raw_columns == {**profile.raw_columns, "d": ["bool", "missing"]}
    assert other.num_files == 3


def test_a_profile_of_nothing_is_one_too() -> None:
    profile = profile_of(TABLE.slice(0, 0))
    assert profile.num_rows == 0
    assert DayProfile.from_json(LOGS, json.loads(json.dumps(profile.to_json()))).values == {}
