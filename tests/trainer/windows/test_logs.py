import os
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.trainer.windows.logs import DAY, columns_of, table_of
from trainer.errors import InputError
from trainer.storage.filesystem import open_parquet
from trainer.storage.publishing import delete, write_json
from trainer.storage.uris import join, name_of
from trainer.windows.logs import (
    day_folder,
    fingerprint,
    list_days,
    stat_files,
    write_day,
)

NEXT_DAY = DAY + timedelta(days=1)


@pytest.fixture(params=["local", "gs"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A log of two days, among things that are none."""
    uri = str(tmp_path / "log") if request.param == "local" else join(request.getfixturevalue("bucket"), "log")
    for day in (NEXT_DAY, DAY):
        write_day(uri, day, table_of(columns_of(day=day)))
    for name in (
        "dt=2024-03-07/.part-00000.parquet",
        "dt=2024-13-01/part-00000.parquet",
        "dt=2024-3-7/part-00000.parquet",
        "dt=2024-03-08/inner/part-00000.parquet",
        "notes/part-00000.parquet",
        "part-00000.parquet",
        f"dt={DAY}/_SUCCESS",
        f"dt={DAY}/_hidden.parquet",
    ):
        write_json(join(uri, name), {})
    return uri


def part_of(log: str, day: date) -> str:
    return join(day_folder(log, day), "part-00000.parquet")


def test_only_day_folders_with_parquet_count_as_days(log: str) -> None:
    assert list_days(log) == [DAY, NEXT_DAY]
    assert [file.name for file in stat_files(log, DAY)] == ["part-00000.parquet"]
    with open_parquet(part_of(log, DAY)) as file:
        assert file.read().to_pylist() == table_of(columns_of()).to_pylist()


def test_a_day_that_is_not_there_is_one_line_with_the_newest(log: str) -> None:
    with pytest.raises(InputError, match=rf"^{log}: no logs for 2024-01-01 .*; the newest day there is {NEXT_DAY}"):
        stat_files(log, DAY.replace(month=1, day=1))
    for day in (DAY, NEXT_DAY):
        delete(part_of(log, day))
    with pytest.raises(InputError, match=r"it holds no day at all"):
        stat_files(log, DAY)
    with pytest.raises(InputError, match=rf"^{log}-none: no such folder; logs lie in <logs.uri>/dt="):
        list_days(f"{log}-none")


def test_a_fingerprint_follows_the_content(log: str) -> None:
    before = fingerprint(part_of(log, DAY))
    assert before.name == "part-00000.parquet"
    assert before == fingerprint(part_of(log, DAY))
    columns = columns_of()
    columns["save"][3] = True
    write_day(log, DAY, table_of(columns))
    assert fingerprint(part_of(log, DAY)) != before


def test_a_local_fingerprint_is_of_the_content_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"abc")
    found = fingerprint(file)
    assert (found.name, found.num_bytes) == ("a.parquet", 3)
    assert found.digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    os.utime(file, (0, 0))
    assert fingerprint(file) == found


def test_in_a_bucket_nothing_is_downloaded_for_a_fingerprint(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.cloud.storage import Blob

    write_day(bucket, DAY, table_of(columns_of()))
    for name in ("download_as_bytes", "download_to_filename", "open"):
        monkeypatch.delattr(Blob, name)
    assert "-crc32c-" in fingerprint(part_of(bucket, DAY)).digest


def test_an_unwritable_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where a folder should be")
    with pytest.raises(InputError, match=r"part-00000.parquet: cannot be written \(Not a directory\); "):
        write_day(str(tmp_path / "log"), DAY, table_of(columns_of()))
    assert name_of(day_folder("gs://bucket/log", DAY)) == f"dt={DAY}"
