import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.trainer import tiny
from trainer.checkpoint import write_checkpoint
from trainer.errors import InputError
from trainer.model.backbone import (
    KIND,
    load_backbone,
    load_pretrained_part,
    open_backbone,
    pretrained_part,
    shape_facts,
)
from trainer.model.ranker import Ranker


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    recipe = tiny.recipe()
    torch.manual_seed(1)
    parts = {
        "tables": {"user": torch.randn(17, 4), "pin": torch.randn(33, 4)},
        "state": {"user": torch.rand(17), "pin": torch.rand(33)},
        "dense": pretrained_part(Ranker(recipe)),
    }
    write_checkpoint(tmp_path / "backbone", kind=KIND, facts=shape_facts(recipe), parts=parts)
    return tmp_path / "backbone"


def test_a_backbone_gives_a_ranker_its_pretrained_parts_and_nothing_else(folder: Path) -> None:
    backbone = load_backbone(str(folder), tiny.recipe())
    assert {name: values.shape for name, values in backbone.rows.items()} == {"user": (17, 4), "pin": (33, 4)}
    assert {name: values.shape for name, values in backbone.state.items()} == {"user": (17,), "pin": (33,)}
    torch.manual_seed(2)
    ranker = Ranker(tiny.recipe())
    before = {name: values.clone() for name, values in ranker.state_dict().items()}
    load_pretrained_part(ranker, backbone.dense)
    prefixes = {name.split(".")[0] for name in backbone.dense}
    assert prefixes == {"two_tower", "user_features", "pin_features"}
    for name, values in ranker.state_dict().items():
        assert torch.equal(values, backbone.dense.get(name, before[name])), name


def test_a_part_of_the_pretrained_tensors_is_never_loaded(folder: Path) -> None:
    dense = dict(load_backbone(str(folder), tiny.recipe()).dense)
    dense.pop("two_tower.pin.weight")
    with pytest.raises(AssertionError, match=r"two_tower\.pin\.weight"):
        load_pretrained_part(Ranker(tiny.recipe()), dense)


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("tables.num_user_rows", "18", "num_user_rows 17"),
        ("tables.num_pin_rows", "32", "num_pin_rows 33"),
        ("tables.dim", "8", "dim 4"),
        ("tables.hash_seed", "4", "hash_seed 3"),
        ("logs.num_user_features", "9", "num_user_features 2"),
        ("logs.num_pin_features", "9", "num_pin_features 3"),
    ],
)
def test_a_recipe_of_other_shapes_is_refused_in_one_line(folder: Path, field: str, value: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        open_backbone(str(folder), tiny.recipe({field: value}))
    message = str(caught.value)
    assert f"backbone has {found}, recipe 'tiny' has {value}" in message
    assert str(folder) in message
    assert "thawline pretrain" in message
    assert "\n" not in message


def test_what_is_not_of_the_shape_may_differ(folder: Path) -> None:
    recipe = tiny.recipe({"thaw.arm": "frozen", "model.history_length": "2", "groups.tables.learning_rate": "0.5"})
    opened = open_backbone(str(folder), replace(recipe, name="other"))
    assert opened.checksum == open_backbone(str(folder), tiny.recipe()).checksum


def test_a_backbone_that_does_not_say_its_shape_is_refused(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["facts"]["dim"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="backbone has dim None"):
        open_backbone(str(folder), tiny.recipe())
