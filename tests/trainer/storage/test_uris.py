import os
from pathlib import Path

import pytest

from trainer.errors import InputError
from trainer.storage.uris import bucket_and_key, is_gcs, join, local_path, name_of, parent_of, relative, resolve


@pytest.mark.parametrize("store", ["gs://bucket/store", "/data/store", "store"])
def test_names_are_put_together_and_taken_apart(store: str) -> None:
    uri = join(store, "windows", "a.json")
    assert uri == f"{store}/windows/a.json"
    assert (parent_of(uri), name_of(uri)) == (f"{store}/windows", "a.json")
    assert is_gcs(uri) == store.startswith("gs://")
    assert join(store + "/", "a") == join(store, "a")


def test_a_bucket_and_the_name_in_it() -> None:
    assert bucket_and_key("gs://bucket/some/folder/") == ("bucket", "some/folder")
    assert bucket_and_key("gs://bucket") == ("bucket", "")
    with pytest.raises(InputError, match=r"^gs:///folder: names no bucket; write gs://BUCKET"):
        bucket_and_key("gs:///folder")


@pytest.mark.parametrize("root", ["gs://bucket/a", "{tmp}"])
def test_what_is_named_from_within_a_folder_is_found_again_after_a_move(root: str, tmp_path: Path) -> None:
    root = root.format(tmp=tmp_path)
    name = relative(f"{root}/partitions/dt=1/x", f"{root}/windows")
    assert name == "../partitions/dt=1/x"
    assert resolve(f"{root}/windows", name) == f"{root}/partitions/dt=1/x"
    moved = f"{root}-moved"
    assert resolve(f"{moved}/windows", name) == f"{moved}/partitions/dt=1/x"


def test_what_lies_elsewhere_is_named_in_full() -> None:
    for folder in ("gs://other/windows", "/local/windows"):
        name = relative("gs://bucket/partitions/x", folder)
        assert resolve(folder, name) == "gs://bucket/partitions/x"


def test_a_relative_folder_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert relative("store/partitions/x", "store/windows") == os.path.join("..", "partitions", "x")
    assert resolve("store/windows", "../partitions/x") == str(tmp_path / "store" / "partitions" / "x")


@pytest.mark.parametrize("uri", ["gs://bucket/logs", "s3://bucket/logs"])
def test_where_only_a_folder_will_do_a_bucket_gets_one_clear_line(uri: str) -> None:
    with pytest.raises(InputError, match=rf"^{uri}: {uri[:5]} is not supported here; name a local folder$"):
        local_path(uri)
