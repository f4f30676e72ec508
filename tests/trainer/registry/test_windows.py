from pathlib import Path

from tests.trainer.registry.conftest import MakeWindow
from trainer.recipe import Recipe
from trainer.registry.backbones import register_backbone
from trainer.registry.comparisons import open_parent
from trainer.registry.tracking import connect
from trainer.registry.windows import WINDOW_TAG, named_windows
from trainer.windows.manifest import load_window


def test_runs_name_the_windows_that_they_read(recipe: Recipe, make_window: MakeWindow, tmp_path: Path) -> None:
    # Other tests' runs name windows of the same days.
    tracking_uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    windows = [make_window(num_days, has_heldout=False) for num_days in (2, 3)]
    digests = [load_window(window).digest for window in windows]
    assert not set(digests) & named_windows(tracking_uri)
    backbone = tmp_path / "backbone"
    backbone.mkdir()
    (backbone / "backbone.json").write_text("{}")
    version = register_backbone(recipe, str(backbone), windows[0], tracking_uri)
    facts = {"date": "2017-11-05", "arms": "delayed", WINDOW_TAG: digests[1]}
    comparison = open_parent(recipe, "key", facts, tracking_uri)
    assert set(digests) <= named_windows(tracking_uri)
    client = connect(tracking_uri)
    client.delete_run(comparison)
    assert set(digests) & named_windows(tracking_uri) == {digests[0]}
    found = client.get_model_version(recipe.backbone_name, version)
    client.delete_run(str(found.run_id))
    assert digests[0] in named_windows(tracking_uri), "a registered model came from it"
    client.delete_model_version(recipe.backbone_name, version)
    assert digests[0] not in named_windows(tracking_uri)
