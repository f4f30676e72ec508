import dataclasses
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.models import Model

from tests.trainer.registry.conftest import HOLD, PROMOTE, MakeWindow, an_evaluation
from trainer.errors import InputError
from trainer.evaluation.gate import Decision
from trainer.evaluation.report import Evaluation
from trainer.model.ranker import Ranker
from trainer.recipe import Recipe
from trainer.registry import models
from trainer.registry.models import fetch_champion, find_finished, register_candidate
from trainer.registry.package import input_example
from trainer.registry.summary import StepCost
from trainer.registry.tracking import connect
from trainer.serving import Scorer, save_model
from trainer.windows.manifest import load_window
from trainer.windows.quality.record import QualityRecord

STEPS = {"train": StepCost(duration_s=12.5, peak_rss_mib=900.0), "evaluate": StepCost(duration_s=3, peak_rss_mib=700.0)}
QUALITY = QualityRecord(
    verdict="warn",
    num_breaches=2,
    page="runs/x/quality.html",
    files={"quality.json": '{"verdict": "warn"}', "quality.html": "<p>warn</p>"},
)


@dataclasses.dataclass
class Retrains:
    """Registers retrains of one recipe, each with its key."""

    recipe: Recipe
    tracking_uri: str
    training_dir: Path
    window_path: str

    @property
    def client(self) -> MlflowClient:
        return connect(self.tracking_uri)

    def register(self, key: str, decision: Decision, evaluation: Evaluation | None = None) -> dict[str, Any]:
        return register_candidate(
            self.recipe,
            date(2017, 11, 5),
            self.window_path,
            str(self.training_dir),
            evaluation or an_evaluation(),
            decision,
            "4",
            key,
            STEPS,
            QUALITY,
            self.tracking_uri,
        )

    def versions(self) -> list[str]:
        found = self.client.search_model_versions(f"name = '{self.recipe.model_name}'")
        return sorted(str(version.version) for version in found)

    def aliases(self) -> dict[str, str]:
        aliases = self.client.get_registered_model(self.recipe.model_name).aliases
        return {alias: str(version) for alias, version in aliases.items()}

    def run(self, version: str) -> Run:
        run_id = self.client.get_model_version(self.recipe.model_name, version).run_id
        assert run_id is not None
        return self.client.get_run(run_id)

    def experiment_id(self) -> str:
        experiment = self.client.get_experiment_by_name(self.recipe.model_name)
        assert experiment is not None
        return str(experiment.experiment_id)

    def model_folder(self, version: str) -> Path:
        return Path(self.client.get_model_version_download_uri(self.recipe.model_name, version).removeprefix("file://"))


@pytest.fixture
def retrains(recipe: Recipe, tracking_uri: str, training_dir: Path, make_window: MakeWindow) -> Retrains:
    return Retrains(recipe, tracking_uri, training_dir, make_window())


def test_the_summary_says_what_was_decided_on_what(retrains: Retrains) -> None:
    summary = retrains.register("k1", PROMOTE)
    assert summary["model"] == retrains.recipe.model_name
    assert summary["version"] == "1"
    assert summary["decision"] == "promote"
    assert summary["reasons"] == list(PROMOTE.reasons)
    assert summary["window"] == {
        "days": 3,
        "first_day": "2017-11-01",
        "last_day": "2017-11-03",
        "heldout_day": "2017-11-04",
        "rows": 30,
    }
    assert summary["quality"] == {"verdict": "warn", "findings": 2, "page": "runs/x/quality.html"}
    assert summary["metrics"]["save_auc"] == 0.65
    assert summary["champion_metrics"] is None
    assert summary["duration_s"] == {"train": 12.5, "evaluate": 3}
    assert summary["peak_rss_mib"] == 900.0


def test_registering_twice_registers_once(retrains: Retrains) -> None:
    assert find_finished(retrains.recipe, "k1", retrains.tracking_uri) is None
    first = retrains.register("k1", PROMOTE)
    assert find_finished(retrains.recipe, "k1", retrains.tracking_uri) == first
    assert find_finished(retrains.recipe, "k2", retrains.tracking_uri) is None
    # Even with a champion by now, and the opposite decision, the finished retrain stands.
    assert retrains.register("k1", HOLD, an_evaluation(against_champion=True)) == first
    assert retrains.versions() == ["1"]
    assert retrains.aliases() == {"champion": "1", "candidate": "1"}


def test_champion_moves_only_on_promote_and_candidate_always(retrains: Retrains) -> None:
    retrains.register("k1", HOLD)
    assert retrains.aliases() == {"candidate": "1"}
    retrains.register("k2", PROMOTE)
    assert retrains.aliases() == {"champion": "2", "candidate": "2"}
    retrains.register("k3", HOLD, an_evaluation(against_champion=True))
    assert retrains.aliases() == {"champion": "2", "candidate": "3"}
    retrains.register("k4", PROMOTE, an_evaluation(against_champion=True))
    assert retrains.aliases() == {"champion": "4", "candidate": "4"}
    assert retrains.run("4").data.tags["previous_champion"] == "2"


def test_one_run_holds_parameters_curves_tags_and_records(retrains: Retrains, tmp_path: Path) -> None:
    retrains.register("k1", PROMOTE)
    summary = retrains.register("k2", PROMOTE, an_evaluation(against_champion=True))
    run = retrains.run(summary["version"])
    client, run_id = retrains.client, run.info.run_id
    assert run.info.status == "FINISHED"
    assert run.data.params["thaw.arm"] == "delayed"
    assert run.data.params["tables.dim"] == "16"
    assert run.data.params["logs.labels"] == '["save"]'
    expected_tags = {
        "date": "2017-11-05",
        "run_key": "k2",
        "arm": "delayed",
        "backbone_version": "4",
        "data_verdict": "warn",
    }
    assert expected_tags.items() <= run.data.tags.items()
    assert [(metric.step, metric.value) for metric in client.get_metric_history(run_id, "heldout/save_auc")] == [
        (1, 0.61),
        (2, 0.62),
    ]
    curve = client.get_metric_history(run_id, "curve/loss")
    assert [metric.step for metric in curve] == list(range(1, 41))
    assert run.data.metrics["lift/save_hit3_low"] == 0.001
    assert "candidate/save_calibration_low" not in run.data.metrics

    folder = Path(client.download_artifacts(run_id, "", str(tmp_path)))
    for plot in ("learning_curves.png", "lift.png"):
        assert (folder / "plots" / plot).read_bytes().startswith(b"\x89PNG")
    assert Recipe.from_json((folder / "recipe.json").read_text()) == retrains.recipe
    assert json.loads((folder / "window.json").read_text()) == json.loads(Path(retrains.window_path).read_text())
    assert Evaluation.from_json((folder / "evaluation.json").read_text()).lift["save_hit3"].low == 0.001
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert {name: (folder / name).read_text() for name in QUALITY.files} == QUALITY.files
    record = json.loads((folder / "decision.json").read_text())
    assert record["decision"] == "promote"
    assert record["previous_champion"] == "1"
    assert record["thresholds"]["min_save_lift_low"] == 0.0
    assert record["numbers"]["lift"]["save_hit3"]["low"] == 0.001


def test_everything_lies_beside_the_database_and_nothing_in_the_current_folder(
    retrains: Retrains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    retrains.register("k1", PROMOTE)
    assert fetch_champion(retrains.recipe, retrains.tracking_uri, str(tmp_path / "fetched"))
    assert list(empty.iterdir()) == []
    artifacts = (
        Path(retrains.tracking_uri.removeprefix("sqlite:///")).parent / "mlartifacts" / retrains.recipe.model_name
    )
    assert list(artifacts.rglob("MLmodel"))


def test_the_champion_is_fetched_whole(retrains: Retrains, tmp_path: Path) -> None:
    assert fetch_champion(retrains.recipe, retrains.tracking_uri, str(tmp_path / "out")) is None
    retrains.register("k1", HOLD)
    assert fetch_champion(retrains.recipe, retrains.tracking_uri, str(tmp_path / "out")) is None
    retrains.register("k2", PROMOTE)
    fetched = fetch_champion(retrains.recipe, retrains.tracking_uri, str(tmp_path / "out"))
    assert fetched is not None
    version, folder = fetched
    assert version == "2"
    original = retrains.training_dir / "model"
    assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == {
        path.name: path.read_bytes() for path in original.iterdir()
    }
    assert [path.name for path in (tmp_path / "out").iterdir()] == [Path(folder).name]
    assert fetch_champion(retrains.recipe, retrains.tracking_uri, str(tmp_path / "out")) == fetched


def break_after(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Makes a step of registering fail once it has done its work, and the tidying after it too, as a kill would."""
    original = getattr(models, name)

    def broken(*args: Any) -> Any:
        original(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(models, name, broken)
    monkeypatch.setattr(models, "_settle", lambda *args: None)


@pytest.mark.parametrize("step", ["_register_model", "log_files"])
def test_what_a_kill_left_behind_is_removed_by_the_next_call(
    retrains: Retrains, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        break_after(patch, step)
        retrains.register("k1", PROMOTE)
    assert find_finished(retrains.recipe, "k1", retrains.tracking_uri) is None
    summary = retrains.register("k1", PROMOTE)
    assert retrains.versions() == [summary["version"]]
    assert retrains.aliases() == {"champion": summary["version"], "candidate": summary["version"]}
    assert len(retrains.client.search_runs([retrains.experiment_id()])) == 1
    assert len(retrains.client.search_logged_models([retrains.experiment_id()])) == 1


def test_a_champion_whose_registration_was_cut_short_is_completed(
    retrains: Retrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        break_after(patch, "_move_aliases")
        retrains.register("k1", PROMOTE)
    assert find_finished(retrains.recipe, "k1", retrains.tracking_uri) is None
    summary = retrains.register("k1", HOLD, an_evaluation(against_champion=True))
    assert summary["decision"] == "promote"
    assert retrains.versions() == ["1"]
    assert retrains.aliases() == {"champion": "1", "candidate": "1"}
    assert find_finished(retrains.recipe, "k1", retrains.tracking_uri) == summary


def test_a_failed_registration_leaves_nothing(retrains: Retrains) -> None:
    (retrains.training_dir / "history.json").write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        retrains.register("k1", PROMOTE)
    assert retrains.versions() == []
    assert retrains.client.search_runs([retrains.experiment_id()]) == []


def test_a_candidate_that_was_judged_without_the_champion_is_refused(retrains: Retrains) -> None:
    retrains.register("k1", PROMOTE)
    with pytest.raises(InputError, match="version 1 became champion meanwhile; run again"):
        retrains.register("k2", PROMOTE, an_evaluation(against_champion=False))
    assert retrains.aliases()["champion"] == "1"


def test_the_input_example_is_real_rows_of_the_contract(recipe: Recipe, make_window: MakeWindow) -> None:
    heldout = load_window(make_window()).heldout
    assert heldout is not None
    example = input_example(recipe, heldout)
    assert list(example) == ["user_id", "pin_id", "user_features", "pin_features", "history", "history_actions"]
    assert len(example) == 2
    assert example["history"][0].tolist() == [7, 8, 9]


SERVE = """
import sys
import mlflow, pandas as pd

uri, model, frame, scores = sys.argv[1:]
mlflow.set_tracking_uri(uri)
mlflow.pyfunc.load_model(model).predict(pd.read_parquet(frame)).to_parquet(scores)
"""


def test_a_new_process_loads_the_champion_and_predicts(retrains: Retrains, tmp_path: Path) -> None:
    model = retrains.training_dir / "model"
    tables = {name: torch.randn(8, retrains.recipe.tables.dim) for name in ("user", "pin")}
    save_model(model, retrains.recipe, Ranker(retrains.recipe), tables)
    champion = Scorer.load(model)
    retrains.register("k1", PROMOTE)
    save_model(model, retrains.recipe, Ranker(retrains.recipe), tables)
    retrains.register("k2", HOLD, an_evaluation(against_champion=True))
    heldout = load_window(retrains.window_path).heldout
    assert heldout is not None
    frame = input_example(retrains.recipe, heldout).set_axis([11, 5])
    frame.to_parquet(tmp_path / "frame.parquet")
    model_uri = f"models:/{retrains.recipe.model_name}@champion"
    files = [str(tmp_path / name) for name in ("frame.parquet", "scores.parquet")]
    done = subprocess.run(
        [sys.executable, "-c", SERVE, retrains.tracking_uri, model_uri, *files],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONPATH": str(Path(models.__file__).parents[2])},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING mlflow" not in done.stderr
    scores, wanted = pd.read_parquet(files[1]), champion.predict(frame)
    pd.testing.assert_frame_equal(scores, wanted, atol=1e-6)
    assert not np.allclose(Scorer.load(model).predict(frame), wanted), "champion and candidate are alike"


def test_the_registered_model_has_a_signature_an_example_and_no_pickle(retrains: Retrains) -> None:
    retrains.register("k1", PROMOTE)
    folder = retrains.model_folder("1")
    files = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {"served.py", "input_example.json", "model.json", "weights.safetensors"} <= files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".pt", ".bin"))]
    signature = Model.load(str(folder)).signature
    assert signature.inputs.input_names() == [
        "user_id",
        "pin_id",
        "user_features",
        "pin_features",
        "history",
        "history_actions",
    ]
    assert signature.outputs.input_names() == ["save"]
    requirements = (folder / "requirements.txt").read_text().split()
    assert [line.split("==")[0] for line in requirements] == ["mlflow", "thawline"]
    example = pd.DataFrame(**json.loads((folder / "input_example.json").read_text()))
    assert example["history"].tolist() == [[7, 8, 9], []]
