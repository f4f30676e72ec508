import os
import socket
from pathlib import Path

import pytest

from trainer.errors import InputError
from trainer.storage import preflight as module
from trainer.storage.errors import StorageError
from trainer.storage.filesystem import list_names
from trainer.storage.preflight import preflight


def test_what_can_be_used_passes_and_nothing_stays(tmp_path: Path, bucket: str) -> None:
    preflight(str(tmp_path), writable=False)
    preflight(str(tmp_path), writable=True)
    preflight(str(tmp_path / "made" / "later"), writable=True)
    assert os.listdir(tmp_path) == []
    for uri in (bucket, f"{bucket}/folder"):
        preflight(uri, writable=False)
        preflight(uri, writable=True)
    assert list_names(bucket) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^{tmp_path}/none: no such folder; name one that is"):
        preflight(str(tmp_path / "none"), writable=False)


def test_a_place_that_cannot_be_written_is_named() -> None:
    with pytest.raises(InputError, match=r"^/proc/store: cannot be written in /proc \(.*\); free the space, make it"):
        preflight("/proc/store", writable=True)


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    for writable in (False, True):
        with pytest.raises(InputError, match=r"^gs://no-such-bucket/a: cannot be read \(.*\); name a bucket"):
            preflight("gs://no-such-bucket/a", writable=writable)


def test_who_has_no_credentials_is_told_how_to_get_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    # Where Google's libraries look: a home without a login, and no machine of Google's to ask.
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(InputError, match=r"^gs://bucket/a: nobody says who asks for it; run `gcloud auth"):
        preflight("gs://bucket/a", writable=False)


def test_a_server_that_hangs_is_a_failure_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(StorageError, match=r"^gs://bucket/a: cannot be read after \d+ s \(.*\); try again later$"):
            preflight("gs://bucket/a", writable=False)
