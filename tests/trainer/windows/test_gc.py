import os
from datetime import timedelta
from pathlib import Path

import pytest

from tests.trainer.windows.logs import DAY, columns_of, table_of
from tests.trainer.windows.partitions import NAME, write_partition
from trainer.storage.filesystem import list_names, list_stored
from trainer.storage.publishing import delete, write_json, write_parquet
from trainer.storage.uris import join, name_of, parent_of
from trainer.windows.gc import LEFTOVER, MEMO, PARTITION, WINDOW, find_garbage, remove_garbage
from trainer.windows.manifest import assemble_window, load_window

TABLE = table_of(columns_of())


@pytest.fixture(params=["local", "gs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "local" else join(request.getfixturevalue("bucket"), "store")


def partition(store: str, offset: int, address: str = "0123456789abcdef") -> str:
    day = DAY + timedelta(days=offset)
    folder = join(store, "partitions", f"dt={day}", address)
    write_partition(folder, day, TABLE)
    return folder


def window(store: str, *offsets: int, address: str = "0123456789abcdef") -> str:
    """Assembles one of days that are there; returns its URI."""
    folders = [join(store, "partitions", f"dt={DAY + timedelta(days=offset)}", address) for offset in offsets]
    return assemble_window(folders, store, has_heldout=True)


def digest(uri: str) -> str:
    return name_of(uri).removesuffix(".json")


def test_what_is_named_stays_and_the_rest_is_found(store: str) -> None:
    for offset in range(4):
        partition(store, offset)
    kept, unnamed = window(store, 0, 1), window(store, 1, 2)
    old = partition(store, 0, "fedcba9876543210")
    orphan, killed = join(parent_of(old), "0123456789abcdef", "part-00000-99999999.parquet"), join(old, "x", NAME)
    for uri in (orphan, killed):
        write_parquet(uri, TABLE)
    garbage = find_garbage(store, {digest(kept)}, grace_s=0)
    found = {part.uri: part.reason for part in garbage}
    days = {offset: join(store, "partitions", f"dt={DAY + timedelta(days=offset)}") for offset in range(4)}
    assert found == {
        unnamed: WINDOW,
        join(days[2], "0123456789abcdef"): PARTITION,
        join(days[3], "0123456789abcdef"): PARTITION,
        old: PARTITION,
        orphan: LEFTOVER,
        killed: LEFTOVER,
    }
    before = list_stored(store, is_recursive=True)
    assert sum(part.num_bytes for part in garbage) == sum(
        file.num_bytes for file in before if join(store, file.name) in {uri for part in garbage for uri in part.files}
    )
    assert remove_garbage(store, garbage, {digest(kept)}, grace_s=0) == garbage
    assert load_window(kept).num_rows == 24
    assert find_garbage(store, {digest(kept)}, grace_s=0) == []
    assert list_names(join(store, "partitions")) == [name_of(days[0]), name_of(days[1])]
    assert list_names(join(days[0], "0123456789abcdef")) == [NAME, "partition.json"]


def test_what_is_young_stays_whether_named_or_not(store: str) -> None:
    partition(store, 0)
    partition(store, 1)
    window(store, 0, 1)
    write_parquet(join(store, "partitions", f"dt={DAY}", "00", NAME), TABLE)
    assert find_garbage(store, set(), grace_s=3600) == []


def test_a_day_in_a_window_that_came_meanwhile_stays(store: str) -> None:
    for offset in range(3):
        partition(store, offset)
    garbage = find_garbage(store, set(), grace_s=0)
    assert len(garbage) == 3
    late = window(store, 0, 1)
    removed = remove_garbage(store, garbage, {digest(late)}, grace_s=0)
    assert [part.reason for part in removed] == [PARTITION]
    assert load_window(late).num_rows == 24


def test_a_day_goes_by_its_name_first(store: str) -> None:
    folder = partition(store, 0)
    (garbage,) = find_garbage(store, set(), grace_s=0)
    assert [name_of(uri) for uri in garbage.files] == ["partition.json", NAME]
    delete(garbage.files[0])
    (left,) = find_garbage(store, set(), grace_s=0)
    assert (left.uri, left.reason) == (join(folder, NAME), LEFTOVER)


def test_what_a_killed_process_left_aside_is_found(tmp_path: Path) -> None:
    store = str(tmp_path)
    folder = partition(store, 0)
    aside = Path(folder, ".partition.json.0f.aside")
    aside.touch()
    write_json(tmp_path / "windows" / ".a.json.0f.aside", {})
    found = {part.uri: part.reason for part in find_garbage(store, set(), grace_s=0)}
    assert found == {str(tmp_path / "windows" / ".a.json.0f.aside"): LEFTOVER, folder: PARTITION}


def test_a_memo_goes_with_its_day(store: str) -> None:
    for offset in range(2):
        partition(store, offset)
        memo = join(store, "prepared", f"dt={DAY + timedelta(days=offset)}", "0f.json")
        write_json(memo, {"address": "0123456789abcdef"})
    kept = window(store, 0, 1)
    assert find_garbage(store, {digest(kept)}, grace_s=0) == []
    delete(join(store, "partitions", f"dt={DAY}", "0123456789abcdef", "partition.json"))
    found = find_garbage(store, {digest(kept)}, grace_s=0)
    assert {part.reason for part in found} == {LEFTOVER, MEMO}
    found = find_garbage(store, set(), grace_s=0)
    assert sorted(part.reason for part in found) == sorted([WINDOW, PARTITION, LEFTOVER, MEMO, MEMO])
    assert remove_garbage(store, found, set(), grace_s=0) == found
    assert list_names(store) == []


def test_files_from_a_clock_that_is_ahead_are_young(tmp_path: Path) -> None:
    folder = partition(str(tmp_path), 0)
    ahead_s = (Path(folder) / NAME).stat().st_mtime + 1e6
    os.utime(Path(folder) / NAME, (ahead_s, ahead_s))
    assert find_garbage(str(tmp_path), set(), grace_s=0) == []


def test_an_empty_store_holds_no_garbage(store: str) -> None:
    assert find_garbage(store, set(), grace_s=0) == []
