"""Small logs in the contract, made by hand."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from trainer.recipe import LogsConfig, LossesConfig, Recipe, TablesConfig, WindowConfig
from trainer.windows.contract import arrow_schema
from trainer.windows.logs import write_day

DAY = date(2024, 3, 5)


def logs_config(uri: Path | str) -> LogsConfig:
    return LogsConfig(uri=str(uri), labels=("save", "click"), num_user_features=2, num_pin_features=3)


def recipe_for(uri: Path | str, shuffle_seed: int = 17) -> Recipe:
    return Recipe(
        name="test",
        logs=logs_config(uri),
        tables=TablesConfig(num_user_rows=16, num_pin_rows=16),
        window=WindowConfig(num_days=2, shuffle_seed=shuffle_seed),
        losses=LossesConfig(head_weights=(1.0, 1.0)),
    )


def columns_of(num_slates: int = 6, slate_size: int = 4, day: date = DAY) -> dict[str, list[Any]]:
    """Columns of a sound day: slates one after another, every value plain to see."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    rows = [(slate, position) for slate in range(num_slates) for position in range(slate_size)]
    return {
        "request_id": [100 + slate for slate, _ in rows],
        "user_id": [slate % 3 for slate, _ in rows],
        "pin_id": [10 * slate + position for slate, position in rows],
        "ts": [midnight + timedelta(minutes=slate) for slate, _ in rows],
        "position": [position for _, position in rows],
        "save": [position == 0 for _, position in rows],
        "click": [position < 2 for _, position in rows],
        "user_features": [[float(slate), 1.0] for slate, _ in rows],
        "pin_features": [[0.0, 1.0, float(position)] for _, position in rows],
        "history": [list(range(slate)) for slate, _ in rows],
        "history_actions": [[1] * slate for slate, _ in rows],
    }


def table_of(columns: dict[str, list[Any]]) -> pa.Table:
    """The columns with the contract's types, nulls let through, extras of any name kept."""
    extras = [name for name in ("propensity", "image", "text") if name in columns]
    kinds = {field.name: field.type for field in arrow_schema(logs_config(""), extras)}
    return pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})


def write_log(uri: Path, day: date = DAY, change: Callable[[dict[str, list[Any]]], None] | None = None) -> Path:
    """Writes one sound day, changed by `change` first; returns its file."""
    columns = columns_of(day=day)
    if change:
        change(columns)
    write_day(str(uri), day, table_of(columns))
    return uri / f"dt={day}" / "part-00000.parquet"
