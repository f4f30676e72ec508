import os
from pathlib import Path

import pytest

from trainer.errors import InputError
from trainer.storage.errors import StorageError
from trainer.storage.filesystem import exists, filesystem_of, list_folders, list_names, list_stored, open_parquet, stat
from trainer.storage.publishing import delete, write_json
from trainer.storage.uris import join


@pytest.fixture(params=["local", "gs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder with two files and a folder with one more."""
    root = str(tmp_path / "root") if request.param == "local" else join(request.getfixturevalue("bucket"), "root")
    for name in ("b.json", "a.json", "inner/c.json"):
        write_json(join(root, name), {"name": name})
    return root


def test_a_folder_lists_what_is_in_it(folder: str) -> None:
    assert list_names(folder) == ["a.json", "b.json", "inner"]
    assert list_folders(folder) == ["inner"]
    assert [file.name for file in list_stored(folder)] == ["a.json", "b.json"]
    assert [file.name for file in list_stored(folder, is_recursive=True)] == ["a.json", "b.json", "inner/c.json"]
    nothing = join(folder, "nothing")
    assert (list_names(nothing), list_folders(nothing), list_stored(nothing)) == ([], [], [])


def test_a_file_says_what_it_is_and_when_it_changes(folder: str) -> None:
    target = join(folder, "a.json")
    before = stat(target)
    assert before == list_stored(folder)[0]
    assert (before.name, before.num_bytes) == ("a.json", len('{\n  "name": "a.json"\n}\n'))
    assert stat(target) == before
    write_json(target, {"name": "b.json"})
    after = stat(target)
    assert (after.num_bytes, after.version == before.version) == (before.num_bytes, False)
    assert after.modified_s >= before.modified_s


def test_a_time_set_back_does_not_hide_a_change(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    found = target.stat()
    before = stat(target)
    target.write_bytes(b"new")
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert stat(target).version != before.version


def test_what_is_there_and_what_is_not(folder: str) -> None:
    target = join(folder, "a.json")
    assert exists(target)
    delete(target)
    assert not exists(target)
    assert not exists(join(folder, "inner"))
    for look in (stat, lambda uri: open_parquet(uri).__enter__()):
        with pytest.raises(InputError, match=rf"^{target}: cannot be read \("):
            look(target)


@pytest.mark.parametrize("look", [list_names, list_folders, list_stored, exists, stat])
def test_a_bucket_that_is_not_there_is_one_line(bucket: str, look: object) -> None:
    assert callable(look)
    uri = "gs://no-such-bucket/folder"
    if look is exists:
        assert not exists(uri)
        return
    with pytest.raises(InputError, match=rf"^{uri}: cannot be read \(.*\); name a bucket") as told:
        look(uri)
    assert "\n" not in str(told.value)


def test_a_server_that_is_not_there_is_a_failure_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:9")
    monkeypatch.setenv("THAWLINE_STORAGE_RETRY_S", "1")
    for look in (list_names, stat, lambda uri: open_parquet(uri).__enter__()):
        with pytest.raises(StorageError, match=r"^gs://bucket/a: cannot be read after \d+ s \(.*\); try again") as told:
            look("gs://bucket/a")
        assert "\n" not in str(told.value)


def test_a_budget_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv("THAWLINE_STORAGE_RETRY_S", text)
        with pytest.raises(InputError, match=rf"^THAWLINE_STORAGE_RETRY_S='{text}': not a number of seconds"):
            filesystem_of("gs://bucket/a")


def test_other_schemes_are_refused() -> None:
    with pytest.raises(InputError, match=r"^s3://bucket/a: s3:// is not supported here"):
        filesystem_of("s3://bucket/a")
