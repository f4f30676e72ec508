from pathlib import Path

import pytest

from tests.trainer.launch.tiny_days import Prepared, prepare
from trainer.launch import launch_pretraining, launch_training


@pytest.fixture(scope="session")
def prepared(tiny_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tiny_log, tmp_path_factory.mktemp("launch"))


@pytest.fixture(scope="session")
def backbone(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "backbone"
    launch_pretraining(prepared.recipe, prepared.pretraining, str(folder))
    return folder


@pytest.fixture(scope="session")
def training(prepared: Prepared, backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks of one host left."""
    out = tmp_path_factory.mktemp("trained") / "training"
    launch_training(prepared.two_ranks(), prepared.window, str(backbone), str(out))
    return out
