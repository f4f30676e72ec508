"""One real MLflow database for all tests of the registry, for making its tables takes seconds; names differ by test."""

import json
import uuid
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.windows.partitions import write_partition
from trainer.evaluation.gate import Decision
from trainer.evaluation.lift import Interval
from trainer.evaluation.report import Evaluation
from trainer.recipe import LogsConfig, Recipe, TablesConfig
from trainer.registry.tracking import connect
from trainer.windows.manifest import assemble_window

FIRST_DAY = date(2017, 11, 1)
MakeWindow = Callable[..., str]


@pytest.fixture(scope="session")
def tracking_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"
    connect(uri).search_experiments()
    return uri


@pytest.fixture
def recipe() -> Recipe:
    return Recipe(
        name=f"test-{uuid.uuid4().hex[:8]}",
        logs=LogsConfig(uri="logs", num_user_features=3, num_pin_features=2),
        tables=TablesConfig(num_user_rows=8, num_pin_rows=8),
    )


@pytest.fixture
def make_window(tmp_path: Path) -> MakeWindow:
    def make(num_days: int = 3, *, first_day: date = FIRST_DAY, has_heldout: bool = True) -> str:
        days = [first_day + timedelta(days=number) for number in range(num_days + has_heldout)]
        return assemble_window([_write_day(tmp_path, day) for day in days], str(tmp_path), has_heldout=has_heldout)

    return make


@pytest.fixture
def training_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "training"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "model.json").write_text(json.dumps({"bias": 0.25}))
    (folder / "model" / "weights.safetensors").write_bytes(bytes(range(64)))
    curve = [
        {"epoch": step / 20, "loss": 0.7 - step / 200, "phase": "frozen" if step < 20 else "adapting"}
        for step in range(1, 41)
    ]
    epochs = [
        {
            "epoch": number,
            "phase": phase,
            "loss": 0.6 - number / 100,
            "losses": {"save": 0.5, "contrastive": 0.1},
            "duration_s": 12.5,
            "rows_per_s": 1000.0,
            "num_row_gradients": 4000 if phase == "adapting" else 0,
            "heldout": {"save_auc": 0.6 + number / 100, "save_hit3": 0.3, "save_log_loss": None},
            "lookup": {"exposed_s": 0.5, "hidden_share": 0.75},
            "reader_wait_s": 0.01,
            "canary": {"self_influence": 0.01, "loss_jump": 0.0},
        }
        for number, phase in ((1, "frozen"), (2, "adapting"))
    ]
    history = {
        "arm": "delayed",
        "num_steps": 40,
        "thaw_epoch": 1.0,
        "epochs": epochs,
        "curve": curve,
        "refrozen_at": None,
    }
    (folder / "history.json").write_text(json.dumps(history))
    return folder


def an_evaluation(*, against_champion: bool = False) -> Evaluation:
    own = {
        "save_hit3": Interval(0.30, 0.28, 0.32),
        "save_auc": Interval(0.65, 0.63, 0.67),
        "save_log_loss": Interval(0.4, 0.39, 0.41),
        "save_calibration": Interval(1.0, float("nan"), float("nan")),
    }
    return Evaluation(
        labels=("save",),
        hit_k=3,
        confidence=0.95,
        num_rows=100,
        num_slates=20,
        num_users=10,
        candidate=own,
        champion=own if against_champion else None,
        lift={"save_hit3": Interval(0.0116, 0.001, 0.02)} if against_champion else {},
    )


PROMOTE = Decision("promote", ("AUC is above the threshold.", "There is no champion yet."))
HOLD = Decision("hold", ("The lower end is not above the threshold.",))


def _write_day(store: Path, day: date) -> str:
    folder = store / "partitions" / f"dt={day.isoformat()}" / "0123456789abcdef"
    num_rows = 10
    table = pa.table(
        {
            "request_id": pa.array(np.arange(num_rows) // 5, pa.int64()),
            "user_id": pa.array(np.arange(num_rows) // 5, pa.int64()),
            "pin_id": pa.array(np.arange(num_rows), pa.int64()),
            "user_features": pa.array([[0.5, 0.25, 1.0]] * num_rows, pa.list_(pa.float32())),
            "pin_features": pa.array([[0.5, 0.25]] * num_rows, pa.list_(pa.float32())),
            "history": pa.array([[7, 8, 9], []] * (num_rows // 2), pa.list_(pa.int64())),
            "history_actions": pa.array([[1, 1, 2], []] * (num_rows // 2), pa.list_(pa.int8())),
        }
    )
    if not (folder / "partition.json").exists():
        write_partition(folder, day, table, num_slates=2)
    return str(folder)
