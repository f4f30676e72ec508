"""Pretraining and training from end to end, as steps of a DAG call them: on prepared days, in processes of torchrun."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from tests.trainer.launch.processes import processes_that_name, wait_for
from tests.trainer.launch.tiny_days import WITHOUT_NEGATIVES, Prepared, history_of
from tests.trainer.windows.partitions import read_rows
from trainer.batches.columns import Columns
from trainer.checkpoint import read_checkpoint
from trainer.errors import InputError
from trainer.evaluation.metrics import auc
from trainer.launch import launch_pretraining, launch_training
from trainer.model.backbone import KIND as BACKBONE
from trainer.model.backbone import load_backbone, pretrained_part
from trainer.recipe import Recipe
from trainer.runs import pretrain, train
from trainer.serving import Scorer
from trainer.windows.manifest import Partition, load_window

REPOSITORY = Path(__file__).parents[3]
# Backbone and training are made once for all of these.
pytestmark = pytest.mark.xdist_group("launches")


def frame_of(partition: Partition) -> pd.DataFrame:
    """The rows as a user would score them, without labels."""
    return read_rows(partition).to_pandas().drop(columns=["save", "click", "hide"])


def save_auc(partition: Partition, scores: pd.DataFrame) -> float:
    save = read_rows(partition)["save"]
    return auc(scores["save"].to_numpy(), save.to_numpy())


def test_a_backbone_says_what_it_was_made_of(prepared: Prepared, backbone: Path) -> None:
    checkpoint = read_checkpoint(backbone, kind=BACKBONE)
    assert checkpoint.facts["first_day"] == "2024-01-01"
    assert checkpoint.facts["last_day"] == "2024-01-03"
    assert checkpoint.facts["num_rows"] == load_window(prepared.pretraining).num_rows
    assert Recipe.from_json(checkpoint.facts["recipe"]) == prepared.recipe
    found = load_backbone(str(backbone), prepared.recipe)
    assert {name: tuple(rows.shape) for name, rows in found.rows.items()} == {"user": (101, 4), "pin": (301, 4)}
    assert all(state.any() for state in found.state.values())


def test_training_leaves_a_model_and_its_history(prepared: Prepared, training: Path) -> None:
    assert {path.name for path in training.iterdir()} == {"model", "history.json"}
    history = history_of(training)
    assert history["arm"] == "delayed"
    assert history["thaw_epoch"] == 1.0
    assert [epoch["phase"] for epoch in history["epochs"]] == ["frozen", "adapting"]
    assert set(history["epochs"][0]["heldout"]) == {"save_auc", "save_auc_new_pins", "save_hit3", "save_log_loss"}
    assert set(history["epochs"][0]["losses"]) == {"head", "pairwise", "contrastive"}
    assert {"epoch", "loss", "phase"} == set(history["curve"][0])
    heldout = load_window(prepared.window).heldout
    assert heldout is not None
    frame = frame_of(heldout)
    scores = Scorer.load(training / "model").predict(frame)
    assert list(scores.columns) == ["save", "click", "hide"]
    assert save_auc(heldout, scores) == pytest.approx(history["epochs"][-1]["heldout"]["save_auc"], abs=1e-6)


def test_another_process_gives_the_same_bits(prepared: Prepared, backbone: Path, one_rank: torch.device) -> None:
    recipe, days = prepared.recipe, load_window(prepared.pretraining).days
    run = pretrain(recipe, Columns.read(days, recipe), device=one_rank)
    found = load_backbone(str(backbone), recipe)
    for mine, written in (
        (run.tables.rows(), found.rows),
        (run.tables.state(), found.state),
        (pretrained_part(run.ranker), found.dense),
    ):
        assert mine.keys() == written.keys()
        assert all(torch.equal(mine[name], values) for name, values in written.items())


def test_two_ranks_train_a_model_as_good_as_one(
    prepared: Prepared, backbone: Path, training: Path, one_rank: torch.device
) -> None:
    recipe, window = prepared.recipe.override(WITHOUT_NEGATIVES), load_window(prepared.window)
    assert window.heldout is not None
    columns, heldout = Columns.read(window.days, recipe), Columns.read([window.heldout], recipe)
    alone = train(recipe, columns, heldout, load_backbone(str(backbone), recipe), device=one_rank)
    for mine, theirs in zip(alone.history.epochs, history_of(training)["epochs"], strict=True):
        assert theirs["heldout"]["save_auc"] == pytest.approx(mine.heldout["save_auc"], abs=1e-3)
        assert theirs["heldout"]["save_log_loss"] == pytest.approx(mine.heldout["save_log_loss"], rel=1e-3)
    tables = read_checkpoint(training / "model", kind="model").tensors("tables")
    for name, values in alone.tables.rows().items():
        torch.testing.assert_close(tables[name], values, atol=1e-4, rtol=0)


def refusal(action: Callable[[Path], None], tmp_path: Path) -> str:
    out = tmp_path / "out"
    with pytest.raises(InputError) as caught:
        action(out)
    message = str(caught.value)
    assert "\n" not in message
    assert not out.exists()
    return message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tables.dim": "8"}, "backbone has dim 4, recipe 'tiny' has 8"),
        ({"tables.num_pin_rows": "302"}, "backbone has num_pin_rows 301, recipe 'tiny' has 302"),
        ({"tables.hash_seed": "9"}, "backbone has hash_seed 3, recipe 'tiny' has 9"),
    ],
)
def test_a_backbone_of_other_dimensions_is_refused(
    prepared: Prepared, backbone: Path, tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    recipe = prepared.recipe.override(settings)
    message = refusal(lambda out: launch_training(recipe, prepared.window, str(backbone), str(out)), tmp_path)
    assert words in message


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_a_truncated_backbone_is_refused(prepared: Prepared, backbone: Path, tmp_path: Path) -> None:
    damaged = copied(backbone, tmp_path / "damaged")
    tables = damaged / "tables.safetensors"
    tables.write_bytes(tables.read_bytes()[:-100])
    message = refusal(lambda out: launch_training(prepared.recipe, prepared.window, str(damaged), str(out)), tmp_path)
    assert str(tables) in message


def test_an_unfinished_backbone_is_refused(prepared: Prepared, backbone: Path, tmp_path: Path) -> None:
    unfinished = copied(backbone, tmp_path / "unfinished")
    (unfinished / "manifest.json").unlink()
    message = refusal(
        lambda out: launch_training(prepared.recipe, prepared.window, str(unfinished), str(out)), tmp_path
    )
    assert f"{unfinished}: no finished backbone here" in message


def test_a_window_that_is_not_there_is_refused(prepared: Prepared, backbone: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "windows" / "0123.json")
    for action in (
        lambda out: launch_training(prepared.recipe, missing, str(backbone), str(out)),
        lambda out: launch_pretraining(prepared.recipe, missing, str(out)),
    ):
        assert missing in refusal(action, tmp_path)


def test_a_window_without_a_heldout_day_is_not_trained_on(prepared: Prepared, backbone: Path, tmp_path: Path) -> None:
    message = refusal(
        lambda out: launch_training(prepared.recipe, prepared.pretraining, str(backbone), str(out)), tmp_path
    )
    assert f"{prepared.pretraining}: window has no held-out day" in message


WAITING = """
import sys
from trainer.launch import launch_pretraining
from trainer.recipe import Recipe
launch_pretraining(Recipe.from_json(sys.argv[1]), *sys.argv[2:])
"""


def test_whoever_is_interrupted_takes_the_ranks_along(prepared: Prepared, tmp_path: Path) -> None:
    recipe = prepared.two_ranks().override({"backbone.num_epochs": "10000"})
    command = [sys.executable, "-c", WAITING, recipe.to_json(), prepared.pretraining, str(tmp_path / "out")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    said = tmp_path / "stderr"
    with said.open("w") as stderr:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=stderr)
        wait_for(lambda: "epoch 1: loss" in said.read_text(), what="training")
        assert len(list(processes_that_name(tmp_path / "tmp"))) >= 3, "torchrun and two ranks"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) != 0
    assert not list(processes_that_name(tmp_path / "tmp"))


def test_a_process_that_fails_is_told(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RuntimeError, match="pretrain: torchrun failed with exit code 1"):
        launch_pretraining(prepared.recipe, prepared.pretraining, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
