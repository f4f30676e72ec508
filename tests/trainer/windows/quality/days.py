"""Days of a clean log drawn with a seed, and what to change about one of them."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.recipe import LogsConfig, Recipe, TablesConfig
from trainer.windows.contract import arrow_schema
from trainer.windows.quality.days import DayFacts
from trainer.windows.quality.profile import DayProfile

LOGS = LogsConfig(uri="logs", num_user_features=2, num_pin_features=2)
RECIPE = Recipe(name="feed", logs=LOGS, tables=TablesConfig(num_user_rows=8, num_pin_rows=8))
FIRST_DAY = date(2024, 3, 1)
NUM_DAYS = 9
SLATE_SIZE = 5

Columns = dict[str, Any]


def columns_of(seed: int, number: int, num_slates: int = 600) -> Columns:
    """A day as NumPy columns: 600 slates of 5 pins, a tenth of the rows saved, one pin in fifty a new one."""
    rng = np.random.default_rng([seed, number])
    num_slates = round(num_slates * rng.uniform(0.9, 1.1))
    rows = num_slates * SLATE_SIZE
    midnight_s = np.datetime64(FIRST_DAY + timedelta(days=number), "s").astype(np.int64)
    positions = np.tile(np.arange(SLATE_SIZE), num_slates)
    pins = SLATE_SIZE * rng.integers(0, 400, rows) + positions
    fresh = rng.random(rows) < 0.02
    return {
        "request_id": np.repeat(np.arange(num_slates), SLATE_SIZE) + 10**6 * number,
        "user_id": np.repeat(rng.integers(0, 300, num_slates), SLATE_SIZE),
        "pin_id": np.where(fresh, 10_000 + 1000 * number + np.arange(rows) % 1000, pins),
        "ts": (midnight_s + np.repeat(np.sort(rng.integers(0, 86_400, num_slates)), SLATE_SIZE)) * 10**6,
        "position": positions,
        "save": rng.random(rows) < 0.1,
        "user_features": np.repeat(rng.normal(size=(num_slates, 2)), SLATE_SIZE, axis=0),
        "pin_features": np.stack([np.floor(rng.exponential(3.0, rows)), rng.random(rows) < 0.3], axis=1),
        "history_length": rng.integers(0, 20, rows),
    }


def table_of(columns: Columns) -> pa.Table:
    """The columns in the types of the contract; histories are made of zeros."""
    columns = dict(columns)
    lengths = columns.pop("history_length")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns["history"] = pa.ListArray.from_arrays(offsets, np.zeros(offsets[-1], np.int64))
    columns["history_actions"] = pa.ListArray.from_arrays(offsets, np.zeros(offsets[-1], np.int8))
    for name in ("user_features", "pin_features"):
        values = np.asarray(columns[name], np.float32)
        starts = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
        columns[name] = pa.ListArray.from_arrays(starts, values.ravel())
    columns["ts"] = pa.array(columns["ts"], pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    schema = arrow_schema(LOGS)
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return pa.table({name: columns[name] for name in schema.names}).cast(nullable)


def facts_of(number: int, table: pa.Table, **dropped: int) -> DayFacts:
    profile = DayProfile(LOGS)
    profile.add_file(table.schema)
    profile.add(table)
    return DayFacts(
        day=FIRST_DAY + timedelta(days=number),
        num_slates=len(table["request_id"].unique()),
        num_raw_rows=table.num_rows + sum(dropped.values()),
        num_duplicates=dropped.get("num_duplicates", 0),
        num_quarantined=dropped.get("num_quarantined", 0),
        profile=profile,
    )


def days_of(seed: int = 0, change: Callable[[Columns], None] | None = None, **dropped: int) -> list[DayFacts]:
    """A window; its last day is changed, and had so many raw rows dropped."""
    days = [facts_of(number, table_of(columns_of(seed, number))) for number in range(NUM_DAYS - 1)]
    columns = columns_of(seed, NUM_DAYS - 1)
    if change:
        change(columns)
    return [*days, facts_of(NUM_DAYS - 1, table_of(columns), **dropped)]
