"""Prepared days of the tiny log to train on, and what a training left."""

import json
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from tests.trainer import tiny
from trainer.recipe import LossesConfig, Recipe
from trainer.windows.manifest import assemble_window
from trainer.windows.preparation import prepare_day
from trainer.windows.sources.synthetic import synthetic_logs

FIRST_DAY = date(2024, 1, 1)
# Each rank draws in-batch negatives from its own rows; all else of a step is the same for any number of ranks.
WITHOUT_NEGATIVES = {"losses.contrastive_weight": "0"}


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A recipe, and manifests of the days to pretrain on and of the window after them, in one store."""

    recipe: Recipe
    store: str
    pretraining: str
    window: str

    def two_ranks(self) -> Recipe:
        """The recipe of most tests here."""
        return self.recipe.override({"training.num_ranks": "2", **WITHOUT_NEGATIVES})


def prepare(log: Path, store: Path) -> Prepared:
    """Prepares the days of a log that `tests.conftest.tiny_log` is."""
    base = tiny.recipe()
    recipe = Recipe(
        name="tiny",
        logs=synthetic_logs(str(log)),
        tables=base.tables,
        model=base.model,
        losses=LossesConfig(head_weights=(1.0, 0.5, 0.5)),
        thaw=base.thaw,
        training=base.training,
    ).override({"training.batch_rows": "64", "tables.num_user_rows": "101", "tables.num_pin_rows": "301"})
    days = [prepare_day(recipe, FIRST_DAY + timedelta(days=number), str(store)) for number in range(8)]
    return Prepared(
        recipe=recipe,
        store=str(store),
        pretraining=assemble_window(days[:3], str(store), has_heldout=False),
        window=assemble_window(days[3:], str(store), has_heldout=True),
    )


def history_of(out: Path) -> dict[str, Any]:
    """The history that a training left."""
    history: dict[str, Any] = json.loads((out / "history.json").read_text())
    return history


def assert_same_training(found: Path, wanted: Path) -> None:
    """The same model to the bit, and the same history but for what a clock said."""
    for name in ("tables.safetensors", "dense.safetensors"):
        assert (found / "model" / name).read_bytes() == (wanted / "model" / name).read_bytes(), name
    clocked = {"rows_per_s": None, "duration_s": None, "lookup": None, "reader_wait_s": None}
    mine, theirs = history_of(found), history_of(wanted)
    for history in (mine, theirs):
        history["epochs"] = [{**epoch, **clocked} for epoch in history["epochs"]]
    assert mine == theirs
