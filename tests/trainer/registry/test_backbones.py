from datetime import date
from pathlib import Path

import pytest

from tests.trainer.registry.conftest import FIRST_DAY, MakeWindow
from trainer.errors import InputError
from trainer.recipe import Recipe
from trainer.registry.backbones import checksum, fetch_backbone, find_backbone, register_backbone
from trainer.registry.tracking import connect


@pytest.fixture
def backbone_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "backbone"
    folder.mkdir()
    (folder / "backbone.json").write_text('{"dim": 16}')
    (folder / "tables.safetensors").write_bytes(bytes(range(100)))
    return folder


def register(recipe: Recipe, tracking_uri: str, folder: Path, window_path: str) -> str:
    return register_backbone(recipe, str(folder), window_path, tracking_uri)


def test_none_is_found_before_one_is_registered(recipe: Recipe, tracking_uri: str) -> None:
    assert find_backbone(recipe, FIRST_DAY, tracking_uri) == ""


def test_only_a_backbone_that_has_seen_no_day_of_the_window_is_found(
    recipe: Recipe, tracking_uri: str, backbone_dir: Path, make_window: MakeWindow
) -> None:
    version = register(recipe, tracking_uri, backbone_dir, make_window(3, has_heldout=False))  # 1 to 3 November
    assert find_backbone(recipe, date(2017, 11, 4), tracking_uri) == version
    assert find_backbone(recipe, date(2017, 11, 3), tracking_uri) == ""


def test_the_one_that_ends_last_is_found_not_the_one_registered_last(
    recipe: Recipe, tracking_uri: str, backbone_dir: Path, make_window: MakeWindow
) -> None:
    newer = register(recipe, tracking_uri, backbone_dir, make_window(5, has_heldout=False))
    older = register(recipe, tracking_uri, backbone_dir, make_window(3, has_heldout=False))
    assert find_backbone(recipe, date(2017, 12, 1), tracking_uri) == newer
    assert find_backbone(recipe, date(2017, 11, 5), tracking_uri) == older


def test_the_same_files_over_the_same_days_are_registered_once(
    recipe: Recipe, tracking_uri: str, backbone_dir: Path, make_window: MakeWindow
) -> None:
    window_path = make_window(3, has_heldout=False)
    first = register(recipe, tracking_uri, backbone_dir, window_path)
    assert register(recipe, tracking_uri, backbone_dir, window_path) == first
    (backbone_dir / "backbone.json").write_text('{"dim": 32}')
    second = register(recipe, tracking_uri, backbone_dir, window_path)
    assert second != first
    assert find_backbone(recipe, date(2017, 12, 1), tracking_uri) == second


def test_a_backbone_comes_back_as_it_was_with_its_tags(
    recipe: Recipe, tracking_uri: str, backbone_dir: Path, make_window: MakeWindow, tmp_path: Path
) -> None:
    version = register(recipe, tracking_uri, backbone_dir, make_window(3, has_heldout=False))
    folder = Path(fetch_backbone(recipe, version, tracking_uri, str(tmp_path / "out")))
    assert sorted(path.name for path in folder.iterdir()) == ["backbone.json", "tables.safetensors"]
    assert (folder / "tables.safetensors").read_bytes() == (backbone_dir / "tables.safetensors").read_bytes()
    tags = connect(tracking_uri).get_model_version(recipe.backbone_name, version).tags
    assert tags == {"first_day": "2017-11-01", "last_day": "2017-11-03", "checksum": checksum(backbone_dir)}


def test_a_damaged_backbone_is_refused_and_not_left_behind(
    recipe: Recipe, tracking_uri: str, backbone_dir: Path, make_window: MakeWindow, tmp_path: Path
) -> None:
    version = register(recipe, tracking_uri, backbone_dir, make_window(3, has_heldout=False))
    source = connect(tracking_uri).get_model_version_download_uri(recipe.backbone_name, version)
    (Path(source.removeprefix("file://")) / "tables.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match="are damaged"):
        fetch_backbone(recipe, version, tracking_uri, str(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []


def test_an_unknown_version_is_refused(recipe: Recipe, tracking_uri: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="version 7: not registered; run `thawline pretrain`"):
        fetch_backbone(recipe, "7", tracking_uri, str(tmp_path / "out"))


def test_checksum_knows_names_and_bytes(backbone_dir: Path) -> None:
    before = checksum(backbone_dir)
    (backbone_dir / "tables.safetensors").rename(backbone_dir / "other.safetensors")
    renamed = checksum(backbone_dir)
    (backbone_dir / "other.safetensors").write_bytes(bytes(100))
    assert len({before, renamed, checksum(backbone_dir)}) == 3
