import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.checkpoint import read_checkpoint, write_checkpoint
from trainer.errors import InputError

PARTS = {
    "dense": {"heads.weight": torch.arange(6.0).reshape(2, 3), "heads.bias": torch.tensor([1.0, 2.0])},
    "tables": {"user": torch.eye(3), "pin": torch.arange(4.0).reshape(2, 2).T},
}
FACTS = {"dim": 3, "recipe": "{}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "deep" / "model", kind="model", facts=FACTS, parts=PARTS)
    return tmp_path / "deep" / "model"


def refusal(folder: Path, kind: str = "model") -> str:
    with pytest.raises(InputError) as caught:
        read_checkpoint(folder, kind=kind)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    assert "again" in message or "another folder" in message
    return message


def test_it_comes_back_as_it_was_written(folder: Path) -> None:
    checkpoint = read_checkpoint(str(folder), kind="model")
    assert checkpoint.facts == FACTS
    for part, tensors in PARTS.items():
        found = checkpoint.tensors(part)
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[name], values) for name, values in tensors.items())


def test_the_checksum_names_the_content(folder: Path, tmp_path: Path) -> None:
    first = read_checkpoint(folder, kind="model").checksum
    again = write_checkpoint(tmp_path / "again", kind="model", facts={}, parts=PARTS)
    other = write_checkpoint(tmp_path / "other", kind="model", facts={}, parts={**PARTS, "dense": {"a": torch.ones(1)}})
    assert again.checksum == first
    assert other.checksum != first


def test_nothing_in_it_is_a_pickle(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"dense.safetensors", "tables.safetensors", "manifest.json"}
    for path in folder.glob("*.safetensors"):
        content = path.read_bytes()
        header = int.from_bytes(content[:8], "little")
        assert json.loads(content[8 : 8 + header])
    for source in Path(__file__).parents[2].joinpath("trainer").rglob("*.py"):
        text = source.read_text()
        assert not re.findall(r"import (?:pickle|joblib|dill)|torch\.(?:load|save)\(", text), source


def test_an_unfinished_one_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "manifest.json").unlink()
    assert "no finished model here" in refusal(folder)
    assert "no finished model here" in refusal(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{", '{"kind": "model", "facts"'])
def test_a_manifest_cut_short_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    assert "no finished model here" in refusal(folder)


def test_a_write_that_fails_leaves_no_manifest_of_the_old_content(folder: Path) -> None:
    broken: Any = {"dense": {"heads.bias": None}}
    with pytest.raises(AttributeError):
        write_checkpoint(folder, kind="model", facts=FACTS, parts=broken)
    assert "no finished model here" in refusal(folder)


@pytest.mark.parametrize("name", ["dense.safetensors", "tables.safetensors"])
def test_a_changed_file_is_refused(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).write_bytes(content)
    assert str(folder / name) in refusal(folder)
    (folder / name).write_bytes(content[:-5])
    assert str(folder / name) in refusal(folder)
    (folder / name).unlink()
    assert str(folder / name) in refusal(folder)


def test_a_manifest_that_is_no_text_is_refused(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"\xff\xfe\x00")
    assert "no finished model here" in refusal(folder)


def test_another_kind_or_format_is_refused(folder: Path) -> None:
    assert "holds a model of format 1, not a backbone of format 1" in refusal(folder, kind="backbone")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    assert "holds a model of format 99" in refusal(folder)


@pytest.mark.parametrize("text", ["[]", "3", "null", '{"kind": "model", "format": 1}'])
def test_json_that_is_no_manifest_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    assert str(folder) in refusal(folder)
