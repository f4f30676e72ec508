import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainer.errors import InputError
from trainer.storage.filesystem import list_names, open_parquet
from trainer.storage.publishing import (
    delete,
    file_aside,
    folder_aside,
    parquet_writer,
    publish_once,
    read_json,
    read_text,
    remove_empty_folders,
    write_json,
    write_parquet,
)
from trainer.storage.uris import join

TABLE = pa.table({"a": pa.array(range(100), pa.int64())})


@pytest.fixture(params=["local", "gs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder on this machine, and one in a bucket."""
    if request.param == "local":
        return str(tmp_path / "folder")
    return join(request.getfixturevalue("bucket"), "folder")


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


def test_json_comes_back_and_is_replaced(folder: str) -> None:
    target = join(folder, "a.json")
    for content in ({"b": [1, 2], "a": "x"}, {"a": None}):
        write_json(target, content)
        assert read_json(target, "write it") == content
    assert read_text(target) == '{\n  "a": null\n}\n'
    assert list_names(folder) == ["a.json"]


def test_what_is_published_once_stays(folder: str) -> None:
    target = join(folder, "a.json")
    assert publish_once(target, {"writer": 1})
    assert publish_once(target, {"writer": 1}), "the same again, as after a lost answer"
    assert not publish_once(target, {"writer": 2})
    assert read_json(target, "write it") == {"writer": 1}
    assert list_names(folder) == ["a.json"]


def test_of_many_at_once_one_publishes(folder: str) -> None:
    target = join(folder, "a.json")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda writer: publish_once(target, {"writer": writer}), range(8)))
    assert won.count(True) == 1
    assert read_json(target, "write it") == {"writer": won.index(True)}
    assert list_names(folder) == ["a.json"]


def test_where_there_are_no_links_a_file_is_published_once_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert publish_once(tmp_path / "a.json", {"writer": 1})
    assert not publish_once(tmp_path / "a.json", {"writer": 2})
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_cannot_be_read_is_one_line_with_its_remedy(folder: str) -> None:
    target = join(folder, "a.json")
    with pytest.raises(InputError, match=rf"^{target}: cannot be read \(.*\); write it$"):
        read_json(target, "write it")
    write_parquet(target, TABLE)
    with pytest.raises(InputError, match=rf"^{target}: cannot be read \(not JSON\); write it$"):
        read_json(target, "write it")


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    target = str(tmp_path / "file" / "a")
    for write in (
        lambda: write_json(target, {}),
        lambda: publish_once(target, {}),
        lambda: write_parquet(target, TABLE),
    ):
        with pytest.raises(InputError, match=rf"^{target}: cannot be written \((Not a directory|File exists)\); free "):
            write()


def test_parquet_is_compressed_with_checksums_and_comes_back(folder: str) -> None:
    target = join(folder, "a.parquet")
    write_parquet(target, TABLE)
    with open_parquet(target) as file:
        assert file.read().equals(TABLE)
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_writer_that_fails_leaves_nothing(folder: str) -> None:
    target = join(folder, "a.parquet")
    with pytest.raises(RuntimeError, match="half way"), parquet_writer(target, TABLE.schema) as writer:
        writer.write_table(TABLE)
        raise RuntimeError("half way")
    assert list_names(folder) == []


def test_a_large_file_is_uploaded_in_parts(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.storage.gcs.CHUNK_BYTES", 256 * 1024)
    values = pa.table({"a": pa.array([os.urandom(1024) for _ in range(1500)], pa.binary())})
    write_parquet(join(bucket, "a.parquet"), values)
    with open_parquet(join(bucket, "a.parquet")) as file:
        assert file.read().equals(values)


def test_deleting_again_is_no_fault(folder: str) -> None:
    target = join(folder, "a.json")
    write_json(target, {})
    for _ in range(2):
        delete(target)
    assert list_names(folder) == []


def test_empty_folders_go_up_to_where_they_may(tmp_path: Path) -> None:
    deep = tmp_path / "store" / "partitions" / "day" / "address"
    deep.mkdir(parents=True)
    (tmp_path / "store" / "partitions" / "other").mkdir()
    remove_empty_folders(str(deep), within=str(tmp_path / "store"))
    assert os.listdir(tmp_path / "store" / "partitions") == ["other"]
    (tmp_path / "store" / "partitions" / "other" / "file").touch()
    remove_empty_folders(str(tmp_path / "store" / "partitions" / "other"), within=str(tmp_path / "store"))
    assert (tmp_path / "store" / "partitions" / "other" / "file").exists()


def test_a_flipped_bit_is_found_by_the_pages_checksums(tmp_path: Path) -> None:
    target = tmp_path / "a.parquet"
    write_parquet(target, pa.table({"a": pa.array([os.urandom(8).hex() for _ in range(1000)])}))
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 1
    target.write_bytes(content)
    with pytest.raises(OSError, match=r"CRC|checksum|[Cc]orrupt"), open_parquet(target) as file:
        file.read()
    with pytest.raises(OSError):
        pq.ParquetFile(target, page_checksum_verification=True).read()
