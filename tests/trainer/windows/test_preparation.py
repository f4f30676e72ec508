import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import REPOSITORY
from tests.trainer.windows.logs import DAY, columns_of, logs_config, recipe_for, table_of, write_log
from tests.trainer.windows.partitions import read_rows as read
from trainer.errors import InputError
from trainer.windows import preparation
from trainer.windows.contract import arrow_schema
from trainer.windows.manifest import load_partition
from trainer.windows.preparation import prepare_day
from trainer.windows.preparing.scan import scan
from trainer.windows.preparing.writing import stored_schema


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_log(tmp_path / "log")
    return tmp_path / "log"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def data_file(partition: str | Path) -> Path:
    (file,) = load_partition(str(partition)).files
    return Path(file)


def published(store: str) -> list[str]:
    return sorted(str(path.relative_to(store)) for path in Path(store).rglob("*") if path.is_file())


def test_a_prepared_day_holds_the_rows_of_the_log_in_the_contract(log: Path, store: str) -> None:
    partition = prepare_day(recipe_for(log), DAY, store)
    table = read(partition)
    assert table.schema.equals(stored_schema(arrow_schema(logs_config(log))))
    assert sorted(table.to_pylist(), key=lambda row: row["pin_id"]) == table_of(columns_of()).to_pylist()
    assert Path(partition).parent == Path(store) / "partitions" / f"dt={DAY}"
    content = json.loads((Path(partition) / "partition.json").read_text())
    assert (content["day"], content["num_rows"], content["num_slates"]) == (DAY.isoformat(), 24, 6)
    assert content["filters"] == {
        "num_raw_rows": 24,
        "num_duplicates": 0,
        "num_dropped_negatives": 0,
        "num_quarantined": 0,
        "quarantined": {},
        "num_left_to_the_day_before": 0,
    }
    assert content["ids"]["pin_id"]["num_distinct"] == 24
    assert content["profile"]["num_rows"] == 24
    assert [entry["name"] for entry in content["inputs"]] == ["part-00000.parquet"]


def test_slates_stay_whole_in_the_order_of_position_and_are_shuffled_by_the_seed(tmp_path: Path, store: str) -> None:
    log = tmp_path / "log"
    columns = columns_of(num_slates=50)
    shuffled = np.random.default_rng(0).permutation(200)
    write_log(
        log, change=lambda old: old.update({name: [values[i] for i in shuffled] for name, values in columns.items()})
    )
    orders = []
    for seed in (1, 2):
        table = read(prepare_day(recipe_for(log, shuffle_seed=seed), DAY, store))
        slates = table["request_id"].to_numpy()
        assert np.count_nonzero(np.diff(slates)) == 49
        assert table["position"].to_pylist() == [0, 1, 2, 3] * 50
        orders.append(slates[::4].tolist())
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(100, 150))
    assert orders[0] != orders[1]
    assert orders[0] != sorted(orders[0])


def test_the_newest_of_duplicates_stays_and_the_others_are_counted(log: Path, store: str) -> None:
    def duplicate(columns: dict[str, list[Any]]) -> None:
        for newer_s, saved in ((5, True), (9, False), (5, True)):
            for name, values in columns.items():
                values.append(values[1])
                columns["ts"][-1] += timedelta(seconds=newer_s) if name == "ts" else timedelta()
            columns["save"][-1] = saved
        columns["save"][1] = True

    write_log(log, change=duplicate)
    partition = prepare_day(recipe_for(log), DAY, store)
    rows = [row for row in read(partition).to_pylist() if (row["request_id"], row["pin_id"]) == (100, 1)]
    assert [(row["ts"].second, row["save"]) for row in rows] == [(9, False)]
    content = json.loads((Path(partition) / "partition.json").read_text())
    assert (content["filters"]["num_raw_rows"], content["filters"]["num_duplicates"]) == (27, 3)
    assert content["num_rows"] == 24


def stamps(folder: str) -> list[int]:
    return [path.stat().st_mtime_ns for path in sorted(Path(folder).iterdir())]


@pytest.mark.parametrize("is_settled", [False, True])
def test_preparing_again_does_nothing(log: Path, store: str, monkeypatch: pytest.MonkeyPatch, is_settled: bool) -> None:
    monkeypatch.setattr(preparation, "_SETTLED_S", -60 if is_settled else 60)
    first = prepare_day(recipe_for(log), DAY, store)
    before = stamps(first)
    monkeypatch.setattr(preparation, "scan", None)
    if is_settled:  # what was settled when it was read is not even opened
        monkeypatch.setattr(preparation, "open_day", None)
    assert prepare_day(recipe_for(log), DAY, store) == first
    assert stamps(first) == before


def test_a_day_whose_partition_was_removed_is_prepared_again(log: Path, store: str) -> None:
    first = prepare_day(recipe_for(log), DAY, store)
    shutil.rmtree(first)
    assert prepare_day(recipe_for(log), DAY, store) == first
    assert read(first).num_rows == 24


def test_two_stores_get_the_same_bytes(log: Path, store: str, tmp_path: Path) -> None:
    first = Path(prepare_day(recipe_for(log), DAY, store))
    elsewhere = tmp_path / "moved"
    shutil.copytree(log, elsewhere)
    second = Path(prepare_day(recipe_for(elsewhere), DAY, str(tmp_path / "other")))
    assert first.name == second.name
    assert data_file(first).read_bytes() == data_file(second).read_bytes()


def test_a_changed_input_makes_a_new_version_and_leaves_the_old(log: Path, store: str) -> None:
    old = prepare_day(recipe_for(log), DAY, store)
    before = data_file(old).read_bytes()
    write_log(log, change=lambda columns: columns["save"].__setitem__(3, True))
    new = prepare_day(recipe_for(log), DAY, store)
    assert new != old
    assert data_file(old).read_bytes() == before
    assert read(new)["save"].to_pylist().count(True) == read(old)["save"].to_pylist().count(True) + 1


def test_settings_and_version_are_part_of_the_address(log: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = prepare_day(recipe_for(log), DAY, store)
    assert prepare_day(recipe_for(log).override({"training.seed": "5"}), DAY, store) == old
    assert prepare_day(recipe_for(log, shuffle_seed=18), DAY, store) != old
    monkeypatch.setattr(preparation, "PREPARATION_VERSION", 0)
    assert prepare_day(recipe_for(log), DAY, store) != old


def test_a_day_that_breaks_the_contract_publishes_nothing(log: Path, store: str) -> None:
    write_log(log, change=lambda columns: columns["pin_id"].__setitem__(2, -1))
    with pytest.raises(InputError, match="column 'pin_id', row 2: -1 is negative"):
        prepare_day(recipe_for(log), DAY, store)
    assert published(store) == []


def disk_full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("owner", "name"), [(pq.ParquetWriter, "write_table"), (os, "link")], ids=["rows", "manifest"])
def test_a_failure_while_writing_publishes_nothing(
    log: Path, store: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    write_log(log, change=lambda columns: columns["pin_id"].__setitem__(2, -1))
    recipe = recipe_for(log).override({"window.max_quarantined_share": "0.1"})
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, disk_full)
        with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
            prepare_day(recipe, DAY, store)
    assert published(store) == []
    prepare_day(recipe, DAY, store)
    assert [name.rpartition("/")[2].split("-")[0] for name in published(store)] == [
        "part",
        "partition.json",
        "quarantine",
    ]


def test_a_file_that_changes_while_it_is_read_is_refused(
    log: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan_then_change(*arguments: Any) -> None:
        scan(*arguments)
        write_log(log, change=lambda columns: columns["save"].__setitem__(3, True))

    monkeypatch.setattr(preparation, "scan", scan_then_change)
    with pytest.raises(InputError, match="files changed while they were read"):
        prepare_day(recipe_for(log), DAY, store)
    assert published(store) == []


def test_two_at_once_end_with_one_partition(log: Path, store: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: prepare_day(recipe_for(log), DAY, store), range(8)))
    assert len(paths) == 1
    (path,) = paths
    names = (data_file(path).name, "partition.json")
    assert published(store) == sorted(str((Path(path) / name).relative_to(store)) for name in names)


STALL = """
import sys, time
from pathlib import Path
from tests.trainer.windows.logs import DAY, recipe_for
from trainer.windows import preparation
from trainer.windows.preparing import writing

def stall(path, content):
    Path(sys.argv[3]).touch()
    time.sleep(60)

writing.publish_partition = stall
preparation.prepare_day(recipe_for(sys.argv[1]), DAY, sys.argv[2])
"""


def test_a_kill_between_the_rows_and_the_manifest_publishes_nothing(log: Path, store: str, tmp_path: Path) -> None:
    stalled = tmp_path / "stalled"
    child = subprocess.Popen([sys.executable, "-c", STALL, str(log), store, str(stalled)], cwd=REPOSITORY)
    try:
        deadline_s = time.monotonic() + 30
        while not stalled.exists() and time.monotonic() < deadline_s:
            assert child.poll() is None
            time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    day_folder = Path(store) / "partitions" / f"dt={DAY}"
    assert [path.name.split("-")[0] for path in day_folder.glob("*/*")] == ["part"]
    partition = prepare_day(recipe_for(log), DAY, store)
    assert read(partition).num_rows == 24
