"""Encoders in ``gs://``, on a real fake-gcs-server."""

from pathlib import Path

import pytest

from tests.trainer.model.vlm import tiny_clip
from trainer.errors import InputError
from trainer.model.vlm.folder import check_description, copy_description, encoder_folder
from trainer.model.vlm.huggingface import HuggingFaceEncoder, PretrainedTokenizer
from trainer.storage import gcs
from trainer.storage.errors import StorageError
from trainer.storage.uris import join


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_clip.write_clip(tmp_path_factory.mktemp("folder") / "clip")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def upload(folder: Path, target: str) -> None:
    for file in folder.iterdir():
        gcs.blob(join(target, file.name)).upload_from_filename(str(file), **gcs.budget())


def test_an_encoder_is_fetched_once_and_again_when_it_changes(bucket: str, clip: Path, tmp_path: Path) -> None:
    upload(clip, f"{bucket}/models/clip")
    folder = encoder_folder(f"{bucket}/models/clip")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in clip.iterdir()
    }
    HuggingFaceEncoder(folder, is_pretrained=True)
    PretrainedTokenizer(folder)
    (folder / "mark").touch()
    assert (encoder_folder(f"{bucket}/models/clip/") / "mark").exists()
    (tmp_path / "changed").mkdir()
    (tmp_path / "changed" / "config.json").write_text("{}")
    upload(tmp_path / "changed", f"{bucket}/models/clip")
    changed = encoder_folder(f"{bucket}/models/clip")
    assert changed != folder
    assert (changed / "config.json").read_text() == "{}"


@pytest.mark.parametrize("uri", ["{bucket}/nothing", "gs://no-such-bucket/clip"])
def test_what_is_not_in_the_bucket_is_one_line(bucket: str, uri: str) -> None:
    uri = uri.format(bucket=bucket)
    with pytest.raises(InputError, match=rf"^{uri}: ") as found:
        encoder_folder(uri)
    assert "\n" not in str(found.value)


def test_a_server_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    monkeypatch.setenv("THAWLINE_STORAGE_RETRY_S", "1")
    with pytest.raises(StorageError, match=r"^gs://bucket/clip: cannot be read after \d+ s \(.*\); try again") as found:
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
