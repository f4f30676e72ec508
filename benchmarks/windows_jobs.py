"""One day prepared by us, DuckDB and Polars: the same rows in the same order, as Parquet in zstd.

Each job is written as an engineer who knows the engine would. The others' drop broken rows and go on: they write no
quarantine, count no reasons and profile nothing.
"""

import os
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.windows_log import NUM_PIN_FEATURES, NUM_USER_FEATURES, recipe_of
from trainer.storage.publishing import ROW_GROUP_ROWS
from trainer.windows.manifest import load_partition
from trainer.windows.mixing import mix64
from trainer.windows.preparation import prepare_day
from trainer.windows.preparing.order import slate_words

if TYPE_CHECKING:  # its number of threads is read when it is imported
    import polars as pl

NUM_THREADS = 2
NEGATIVE_RATE = 0.5
SEED = 17
_WORD = 2**64
_ADD, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_NUMBERS = ("request_id", "user_id", "pin_id", "position")
_LABELS = ("save", "click", "hide")
_COLUMNS = (*_NUMBERS[:3], "ts", "position", *_LABELS, "user_features", "pin_features", "history", "history_actions")


def prepare_with_ours(log: Path, day: date, out: Path) -> list[Path]:
    """By this repository."""
    recipe = recipe_of(log, negative_rate=NEGATIVE_RATE)
    return [Path(file) for file in load_partition(prepare_day(recipe, day, str(out))).files]


def prepare_with_duckdb(log: Path, day: date, out: Path) -> list[Path]:
    """In SQL: who loses against a duplicate is found on narrow columns, so whole rows are moved by one sort only."""
    import duckdb

    target = out / "day.parquet"
    files = [str(path) for path in sorted((log / f"dt={day}").glob("*.parquet"))]
    connection = duckdb.connect(config={"threads": NUM_THREADS, "temp_directory": str(out)})
    connection.execute("SET enable_progress_bar = false")
    _add_duckdb_hashes(connection)
    connection.execute(
        f"""
        COPY (
            WITH raw AS (
                SELECT * FROM read_parquet({files}, filename = true, file_row_number = true, hive_partitioning = false)
            ),
            sound AS (SELECT * FROM raw WHERE {_duckdb_checks(day)}),
            older AS (
                SELECT filename, file_row_number FROM sound
                QUALIFY row_number() OVER (
                    PARTITION BY request_id, pin_id ORDER BY ts DESC, filename DESC, file_row_number DESC
                ) > 1
            )
            SELECT {", ".join(_COLUMNS)},
                CASE WHEN {_any_label()} THEN 1 ELSE {1 / NEGATIVE_RATE} END::FLOAT AS weight
            FROM sound ANTI JOIN older USING (filename, file_row_number)
            WHERE {_any_label()} OR pair_word(request_id, pin_id) < {int(NEGATIVE_RATE * _WORD)}
            ORDER BY slate_word(request_id), position, pin_id
        ) TO '{target}' (
            FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE {ROW_GROUP_ROWS}
        )
        """
    )
    return [target]


def _add_duckdb_hashes(connection: Any) -> None:
    """The hash as functions of whole vectors: in SQL it takes 128-bit integers, as 64-bit ones do not wrap around."""

    def slate_word(request: pa.ChunkedArray) -> pa.Array:
        return pa.array(slate_words(request.to_numpy(), SEED))

    def pair_word(request: pa.ChunkedArray, pin: pa.ChunkedArray) -> pa.Array:
        return pa.array(mix64(slate_words(request.to_numpy(), SEED) + pin.to_numpy().astype(np.uint64)))

    connection.create_function("slate_word", slate_word, ["BIGINT"], "UBIGINT", type="arrow")
    connection.create_function("pair_word", pair_word, ["BIGINT", "BIGINT"], "UBIGINT", type="arrow")


def _duckdb_checks(day: date) -> str:
    lengths = {"user_features": NUM_USER_FEATURES, "pin_features": NUM_PIN_FEATURES}
    return " AND ".join(
        [
            *(f"{name} >= 0" for name in _NUMBERS),  # not true of nulls either
            *(f"{label} IS NOT NULL" for label in _LABELS),
            f"ts >= '{day} 00:00:00+00'::TIMESTAMPTZ AND ts < '{day + timedelta(days=1)} 00:00:00+00'::TIMESTAMPTZ",
            *(f"len({name}) = {length} AND list_count({name}) = {length}" for name, length in lengths.items()),
            *(f"isfinite(list_sum({name}))" for name in lengths),
            "len(history) = len(history_actions)",
            *(f"list_count({name}) = len({name})" for name in ("history", "history_actions")),
            *(f"(len({name}) = 0 OR list_min({name}) >= 0)" for name in ("history", "history_actions")),
        ]
    )


def _any_label() -> str:
    return f"({' OR '.join(_LABELS)})"


def prepare_with_polars(log: Path, day: date, out: Path) -> list[Path]:
    """Which rows stay, and in which order, is found on narrow columns; whole rows are gathered once."""
    os.environ["POLARS_MAX_THREADS"] = str(NUM_THREADS)
    import polars as pl

    target = out / "day.parquet"
    raw = pl.scan_parquet(log / f"dt={day}" / "*.parquet", hive_partitioning=False).filter(_polars_checks(day))
    sound = raw.select(_COLUMNS).collect(engine="streaming")
    is_positive = pl.any_horizontal(_LABELS)
    slate = _polars_mix64(
        pl.col("request_id").cast(pl.UInt64) + pl.lit(int(mix64(np.array([SEED], np.uint64))[0]), pl.UInt64)
    )
    pair = _polars_mix64(pl.col("slate") + pl.col("pin_id").cast(pl.UInt64))
    rows = (
        sound.lazy()
        .select("request_id", "pin_id", "ts", "position", is_positive.alias("is_positive"))
        .with_row_index("row")
        .sort("ts", "row")
        .unique(["request_id", "pin_id"], keep="last")
        .with_columns(slate.alias("slate"))
        .filter(pl.col("is_positive") | (pair < pl.lit(int(NEGATIVE_RATE * _WORD), pl.UInt64)))
        .sort("slate", "position", "pin_id")
        .select("row")
        .collect()["row"]
    )
    weight = pl.when(is_positive).then(1.0).otherwise(1 / NEGATIVE_RATE).cast(pl.Float32).alias("weight")
    prepared = sound[rows].with_columns(weight)
    prepared.write_parquet(target, compression="zstd", compression_level=1, row_group_size=ROW_GROUP_ROWS)
    return [target]


def _polars_mix64(word: "pl.Expr") -> "pl.Expr":
    """The hash; Polars' unsigned integers wrap around, and a shift is a division."""
    import polars as pl

    def literal(number: int) -> "pl.Expr":
        return pl.lit(number, pl.UInt64)

    word = word + literal(_ADD)
    word = (word ^ (word // literal(2**30))) * literal(_MIX_1)
    word = (word ^ (word // literal(2**27))) * literal(_MIX_2)
    return word ^ (word // literal(2**31))


def _polars_checks(day: date) -> "pl.Expr":
    import polars as pl

    start = pl.lit(day).cast(pl.Datetime("us", "UTC"))
    checks = [pl.col(name) >= 0 for name in _NUMBERS]
    checks += [pl.col(label).is_not_null() for label in _LABELS]
    checks += [pl.col("ts") >= start, pl.col("ts") < start + timedelta(days=1)]
    for name, length in (("user_features", NUM_USER_FEATURES), ("pin_features", NUM_PIN_FEATURES)):
        values = pl.col(name).list
        checks += [values.drop_nulls().list.len() == length, values.len() == length, values.sum().is_finite()]
    for name in ("history", "history_actions"):
        values = pl.col(name).list
        checks += [values.drop_nulls().list.len() == values.len(), values.min().fill_null(0) >= 0]
    checks.append(pl.col("history").list.len() == pl.col("history_actions").list.len())
    return pl.all_horizontal(checks)


JOBS: Mapping[str, Callable[[Path, date, Path], list[Path]]] = {
    "ours": prepare_with_ours,
    "duckdb": prepare_with_duckdb,
    "polars": prepare_with_polars,
}
