import os
from pathlib import Path

import pytest

from tests.trainer.windows.logs import DAY, columns_of, table_of, write_log
from trainer.errors import InputError
from trainer.storage.publishing import file_aside, folder_aside
from trainer.storage.uris import local_path
from trainer.windows.logs import fingerprint, list_days, list_files, write_day


def test_a_bucket_gets_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"^gs://bucket/logs: gs:// storage is not supported; copy"):
        local_path("gs://bucket/logs")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    target.write_text("old")
    with pytest.raises(RuntimeError), file_aside(target) as aside:
        aside.write_text("half")
        raise RuntimeError
    assert os.listdir(tmp_path) == ["file.json"]
    assert target.read_text() == "old"


def test_a_folder_that_is_there_already_wins(tmp_path: Path) -> None:
    target = tmp_path / "address"
    for writer in ("first", "second"):
        with folder_aside(target) as aside:
            (aside / "part").write_text(writer)
    assert (target / "part").read_text() == "first"
    assert os.listdir(tmp_path) == ["address"]


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where a folder should be")
    with pytest.raises(InputError, match=r"part-00000.parquet: cannot be written \(Not a directory\); "):
        write_day(str(tmp_path / "log"), DAY, table_of(columns_of()))


def test_only_day_folders_with_parquet_count_as_days(tmp_path: Path) -> None:
    write_log(tmp_path)
    for name in ("dt=2024-03-06", "dt=2024-13-01", "dt=2024-3-7", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "dt=2024-03-06" / ".part-00000.parquet").touch()
    assert list_days(str(tmp_path)) == [DAY]
    assert [path.name for path in list_files(str(tmp_path), DAY)] == ["part-00000.parquet"]


def test_a_fingerprint_follows_the_content(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"abc")
    before = fingerprint(file)
    assert (before.name, before.num_bytes) == ("a.parquet", 3)
    assert before.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    file.write_bytes(b"abd")
    assert fingerprint(file) != before
