"""Fresh days, prepared: by us, DuckDB and Polars; in how much memory; and what the next day costs of a whole window.

The same job is done by each, in a process of its own with two threads: a day's raw logs are read, checked,
de-duplicated, their negatives sampled by a hash and weighted, shuffled by a hash of the slate, and written as Parquet
in zstd. Logs are drawn once a size, with histories of 20. In each round every engine runs once, in an order that
turns; a ratio is taken within a round, and its median over the rounds is given. The first round's results are compared
row for row.

The next day: a window of 20 days and its held-out day are prepared from nothing, assembled and checked; then the same
is asked for a day later, when 20 of its 21 days are there.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from benchmarks.report import publish
from benchmarks.rounds import order_of
from benchmarks.windows_jobs import JOBS, NEGATIVE_RATE, NUM_THREADS
from benchmarks.windows_log import draw_day, recipe_of
from components.plan_window.planning import plan_with_files
from components.run import Run, parse_date
from trainer.windows.manifest import assemble_window
from trainer.windows.preparation import prepare_day
from trainer.windows.quality.window import check_window

LOGS = Path(".thawline/bench-windows")
DAY = date(2024, 3, 5)
SMALL, LARGE = 1_000_000, 10_000_000
WINDOW_DAYS, DAY_ROWS = 20, 200_000
OURS, DUCKDB, POLARS = JOBS


def run_job(job: str, log: Path, out: Path, *, has_digests: bool) -> dict[str, Any]:
    """Does a job in this process, on two cores.

    Returns:
        Seconds, most memory in MiB, bytes written and, where asked for, by column a digest of all values in the order
        of the rows.
    """
    began_s = time.perf_counter()
    files = JOBS[job](log, DAY, out)
    duration_s = time.perf_counter() - began_s
    peak_rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    num_bytes = sum(file.stat().st_size for file in files)
    rows = digests(files) if has_digests else {}
    return {"duration_s": duration_s, "peak_rss_mib": peak_rss_mib, "num_bytes": num_bytes, "rows": rows}


def digests(files: Sequence[Path]) -> dict[str, str]:
    """By column, what all values are, however they are encoded and wherever files end."""
    hashes: dict[str, Any] = {}
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for place, values in enumerate(_plain(column)):
                    key = f"{name}.{place}"
                    hashes.setdefault(key, hashlib.blake2b(digest_size=8)).update(values)
    return {name: found.hexdigest() for name, found in sorted(hashes.items())}


def _plain(column: pa.Array) -> Iterator[memoryview]:
    """The bytes of numbers; of lists their lengths too."""
    if pa.types.is_nested(column.type):
        yield from _plain(pc.list_value_length(column).cast(pa.int64()))
        column = pc.list_flatten(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    yield memoryview(column.to_numpy(zero_copy_only=False)).cast("B")


def _run_in_process(job: str, log: Path, *, has_digests: bool) -> dict[str, Any]:
    out = Path(tempfile.mkdtemp(dir=LOGS))
    try:
        os.sync()  # what another job wrote is not on our time
        command = [sys.executable, "-m", "benchmarks.windows", "--job", job, "--log", str(log), "--out", str(out)]
        command += ["--digests"] if has_digests else []
        environment = os.environ | {"TMPDIR": str(out), "POLARS_MAX_THREADS": str(NUM_THREADS)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise RuntimeError(f"{job} failed: {done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    finally:
        shutil.rmtree(out)


def compare(num_rows: int, num_rounds: int) -> dict[str, Any]:
    """All engines on one size.

    Raises:
        RuntimeError: Their results differ.
    """
    log = LOGS / f"rows={num_rows}"
    draw_day(log, DAY, num_rows, seed=num_rows)
    _warm(log)
    rounds: list[dict[str, dict[str, Any]]] = []
    names = list(JOBS)
    for number in tqdm(range(num_rounds), desc=f"{num_rows:,} rows", unit="round"):
        is_first = number == 0  # every engine gives the same rows each time
        rounds.append({job: _run_in_process(job, log, has_digests=is_first) for job in order_of(names, number)})
    _refuse_differences(rounds[0])
    return summarize(rounds)


def _warm(log: Path) -> None:
    for path in log.rglob("*.parquet"):
        path.read_bytes()


def _refuse_differences(found: Mapping[str, Mapping[str, Any]]) -> None:
    wanted = found[OURS]["rows"]
    for job, result in found.items():
        differing = [name for name in {**wanted, **result["rows"]} if wanted.get(name) != result["rows"].get(name)]
        if differing:
            raise RuntimeError(f"{job}'s rows differ from ours in {differing}")


def summarize(rounds: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Medians over the rounds, of ratios taken within them.

    Args:
        rounds: By job, what `run_job` found.
    """

    def median(job: str, name: str) -> float:
        values: list[float] = [found[job][name] for found in rounds]
        return round(statistics.median(values), 3)

    def ratio(job: str) -> float:
        ratios: list[float] = [found[OURS]["duration_s"] / found[job]["duration_s"] for found in rounds]
        return round(statistics.median(ratios), 4)

    return {
        "vs_duckdb": ratio(DUCKDB),
        "vs_polars": ratio(POLARS),
        **{name: {job: median(job, name) for job in JOBS} for name in ("duration_s", "peak_rss_mib", "num_bytes")},
    }


def next_day(day_rows: int) -> dict[str, float]:
    """What the data steps of a retrain take for a whole window, and a day later."""
    log = LOGS / f"days={day_rows}"
    for offset in tqdm(range(WINDOW_DAYS + 2), desc="days drawn", unit="day"):
        draw_day(log, DAY + timedelta(days=offset), day_rows, seed=offset)
    _warm(log)
    store = Path(tempfile.mkdtemp(dir=LOGS))
    try:
        first = DAY + timedelta(days=WINDOW_DAYS + 1)
        durations_s = [_data_steps(log, store, first + timedelta(days=later)) for later in (0, 1)]
    finally:
        shutil.rmtree(store)
    full_s, next_s = durations_s
    return {"full_window_s": round(full_s, 3), "next_day_s": round(next_s, 3), "ratio": round(next_s / full_s, 4)}


def _data_steps(log: Path, store: Path, date_: date) -> float:
    recipe = recipe_of(log, num_days=WINDOW_DAYS, negative_rate=1.0)
    began_s = time.perf_counter()
    run = Run(recipe=recipe, date=date_, store=str(store))
    partitions = [
        prepare_day(
            recipe, parse_date(item["day"]), run.store, is_heldout=item["role"] == "heldout", shard=int(item["shard"])
        )
        for item in plan_with_files(run, "window")
    ]
    check_window(recipe, assemble_window(partitions, run.store, has_heldout=True))
    return time.perf_counter() - began_s


def main() -> None:
    """Measures and publishes."""
    parser = argparse.ArgumentParser(prog="make bench-windows", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows, fewer rounds")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--digests", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(run_job(options.job, options.log, options.out, has_digests=options.digests)))
        return
    LOGS.mkdir(parents=True, exist_ok=True)
    small_rows, large_rows, day_rows = (size // 5 if options.quick else size for size in (SMALL, LARGE, DAY_ROWS))
    small = compare(small_rows, 2 if options.quick else 5)
    large = compare(large_rows, 1 if options.quick else 2)
    window = next_day(day_rows)
    rss = {job: large["peak_rss_mib"][job] / small["peak_rss_mib"][job] for job in JOBS}
    publish(
        "windows",
        {
            "vs_duckdb": large["vs_duckdb"],
            "vs_polars": large["vs_polars"],
            "vs_duckdb_small": small["vs_duckdb"],
            "vs_polars_small": small["vs_polars"],
            "rss_10m_vs_1m": round(rss[OURS], 4),
            "next_day_vs_full_window": window["ratio"],
            "rows_are_equal": True,
            "num_rows": [small_rows, large_rows],
            "negative_rate": NEGATIVE_RATE,
            "small": small,
            "large": large,
            "rss_growth": {job: round(growth, 4) for job, growth in rss.items()},
            "window": {"num_days": WINDOW_DAYS + 1, "day_rows": day_rows, **window},
        },
        quick=options.quick,
    )


if __name__ == "__main__":
    main()
