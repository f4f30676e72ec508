"""Raw logs for the benchmark of day preparation: drawn once a size, quickly, in the log contract.

Shape suffixes: N rows of a file.
"""

import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trainer.recipe import LogsConfig, LossesConfig, Recipe, TablesConfig, WindowConfig
from trainer.storage.publishing import leaf_path
from trainer.windows.contract import arrow_schema

SLATE_SIZE = 20
HISTORY_LENGTH = 20
NUM_USER_FEATURES, NUM_PIN_FEATURES = 4, 8
NUM_USERS, NUM_PINS = 500_000, 1_000_000
DUPLICATE_SHARE = 0.01
BROKEN_SHARE = 0.0002
SAVE_RATE, CLICK_RATE, HIDE_RATE = 0.04, 0.10, 0.005
FILE_ROWS = 500_000
_ZIPF = 1.2
_DAY_US = 86_400_000_000


def recipe_of(log: Path, *, num_days: int = 20, negative_rate: float) -> Recipe:
    """A recipe whose days are prepared from `log`."""
    return Recipe(
        name="bench-windows",
        logs=LogsConfig(
            uri=str(log),
            labels=("save", "click", "hide"),
            num_user_features=NUM_USER_FEATURES,
            num_pin_features=NUM_PIN_FEATURES,
        ),
        tables=TablesConfig(num_user_rows=NUM_USERS, num_pin_rows=NUM_PINS),
        window=WindowConfig(num_days=num_days, negative_rate=negative_rate),
        losses=LossesConfig(head_weights=(1.0, 1.0, 1.0)),
    )


def draw_day(log: Path, day: date, num_rows: int, *, seed: int) -> None:
    """Writes one day, unless it is there: slates of 20 in the order of time, with duplicates and broken rows.

    Args:
        log: Its folder.
        day: The UTC day.
        num_rows: Rows, the duplicates among them.
        seed: Of everything that is drawn.
    """
    target = log / f"dt={day}"
    if target.is_dir():
        return
    aside = log / f".{target.name}.aside"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    starts = range(0, num_rows, FILE_ROWS)
    for number, start in enumerate(starts):
        table = _draw(day, start, min(FILE_ROWS, num_rows - start), num_rows, np.random.default_rng([seed, number]))
        repeated = [leaf_path(field) for field in table.schema if not field.name.endswith("features")]
        path = aside / f"part-{number:05}.parquet"
        pq.write_table(table, path, compression="snappy", row_group_size=125_000, use_dictionary=repeated)
    aside.rename(target)


def _draw(day: date, start: int, num_rows: int, num_day_rows: int, rng: np.random.Generator) -> pa.Table:
    num_fresh = int(num_rows * (1 - DUPLICATE_SHARE)) // SLATE_SIZE * SLATE_SIZE
    first_slate = start // SLATE_SIZE
    slate_N = first_slate + np.arange(num_fresh) // SLATE_SIZE
    midnight_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
    columns: dict[str, NDArray[Any]] = {
        "request_id": slate_N * 1_000_003 + day.toordinal(),
        "user_id": rng.integers(0, NUM_USERS, num_fresh // SLATE_SIZE)[slate_N - first_slate],
        "pin_id": _pins(rng, num_fresh),
        "ts": midnight_us + slate_N * SLATE_SIZE * (_DAY_US // 2) // num_day_rows,
        "position": (np.arange(num_fresh) % SLATE_SIZE).astype(np.int16),
        **{
            label: rng.random(num_fresh, np.float32) < rate
            for label, rate in (("save", SAVE_RATE), ("click", CLICK_RATE), ("hide", HIDE_RATE))
        },
        "user_features": rng.random((num_fresh // SLATE_SIZE, NUM_USER_FEATURES), np.float32)[slate_N - first_slate],
        "pin_features": rng.standard_normal((num_fresh, NUM_PIN_FEATURES), np.float32),
        "history": _pins(rng, num_fresh * HISTORY_LENGTH).reshape(num_fresh, HISTORY_LENGTH),
        "history_actions": rng.integers(0, 4, (num_fresh, HISTORY_LENGTH), np.int8),
    }
    # A slate shows a pin once; some rows are delivered again, later and with another label.
    columns["pin_id"] = columns["pin_id"] * SLATE_SIZE + columns["position"]
    again = rng.integers(0, num_fresh, num_rows - num_fresh)
    rows = np.concatenate([np.arange(num_fresh), again])
    columns = {name: values[rows] for name, values in columns.items()}
    columns["ts"][num_fresh:] += rng.integers(-1_000_000, 1_000_000, len(again))
    columns["save"][num_fresh:] ^= True
    broken = rng.integers(0, num_rows, int(num_rows * BROKEN_SHARE))
    columns["user_id"][broken[::2]] = -1
    columns["pin_features"][broken[1::2], 0] = np.nan
    return _table(columns)


def _pins(rng: np.random.Generator, number: int) -> NDArray[np.int64]:
    """Popular ones often: the rank is drawn from a power law by inverting its distribution."""
    share = rng.random(number, np.float32).astype(np.float64)
    rank = (1 + share * (NUM_PINS ** (1 - _ZIPF) - 1)) ** (1 / (1 - _ZIPF))
    pins: NDArray[np.int64] = np.minimum(rank.astype(np.int64), NUM_PINS - 1)
    return pins


def _table(columns: dict[str, NDArray[Any]]) -> pa.Table:
    schema = arrow_schema(recipe_of(Path("log"), negative_rate=1.0).logs)
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_list(kind):
        return pa.array(values).cast(kind)
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1)), type=kind)
