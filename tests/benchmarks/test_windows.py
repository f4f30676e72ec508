"""The benchmark of day preparation on a small day: engines agree row for row, and how rounds are summed up."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import windows_log
from benchmarks.windows import DAY, digests, summarize
from benchmarks.windows_jobs import JOBS
from benchmarks.windows_log import draw_day


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows_log, "BROKEN_SHARE", 0.0008)
        patch.setattr(windows_log, "FILE_ROWS", 8_000)
        draw_day(log, DAY, 20_000, seed=1)
    return log


@pytest.mark.parametrize("job", [job for job in JOBS if job != "ours"])
def test_every_engine_gives_our_rows_in_our_order(log: Path, tmp_path: Path, job: str) -> None:
    (tmp_path / job).mkdir()
    ours = JOBS["ours"](log, DAY, tmp_path / "ours")
    theirs = JOBS[job](log, DAY, tmp_path / job)
    assert digests(theirs) == digests(ours)
    num_rows = sum(pq.read_metadata(file).num_rows for file in theirs)
    assert 0.5 * 20_000 < num_rows < 0.7 * 20_000


def test_digests_tell_values_lists_and_order_apart_and_nothing_else(tmp_path: Path) -> None:
    def digest(name: str, lists: Any, **options: Any) -> dict[str, str]:
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"history": pa.array(lists, pa.list_(pa.int64()))}), path, **options)
        return digests([path])

    wanted = digest("first", [[1, 2], [3]])
    assert digest("again", [[1, 2], [3]], row_group_size=1, compression="zstd") == wanted
    for name, lists in (("values", [[1, 2], [4]]), ("lengths", [[1], [2, 3]]), ("order", [[3], [1, 2]])):
        assert digest(name, lists) != wanted


def test_ratios_are_taken_within_rounds() -> None:
    """The machine slows down threefold meanwhile."""
    rounds = [
        {
            job: {"duration_s": slowness * factor, "peak_rss_mib": 100 * factor, "num_bytes": 7}
            for job, factor in (("ours", 1.0), ("duckdb", 2.0), ("polars", 4.0))
        }
        for slowness in (1.0, 2.0, 3.0)
    ]
    found = summarize(rounds)
    assert (found["vs_duckdb"], found["vs_polars"]) == (0.5, 0.25)
    assert found["duration_s"] == {"ours": 2.0, "duckdb": 4.0, "polars": 8.0}
    assert found["peak_rss_mib"]["ours"] == 100
