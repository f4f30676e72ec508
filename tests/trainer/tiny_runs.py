"""Whole runs on tiny rows, as one call: a backbone, training from it, and what to compare of two runs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.trainer import tiny
from trainer.batches.columns import Columns
from trainer.embeddings.sharded import ShardedTables
from trainer.model.backbone import Backbone, pretrained_part
from trainer.model.ranker import Ranker
from trainer.recipe import Arm, Recipe
from trainer.run_history import RunHistory
from trainer.runs import Passes, Run, pretrain, train

CPU = torch.device("cpu")
COLUMNS, HELDOUT = tiny.columns(num_slates=40, seed=1), tiny.columns(num_slates=30, seed=2)
PRETRAINING = tiny.columns(num_slates=40, seed=3)
# Each rank draws in-batch negatives from its own rows; all else of a step is the same for any number of ranks.
WITHOUT_NEGATIVES = {"losses.contrastive_weight": "0"}


def recipe(arm: Arm = "delayed", settings: Mapping[str, str] | None = None) -> Recipe:
    return tiny.recipe({"thaw.arm": arm, **(settings or {})})


def make_backbone() -> Backbone:
    run = pretrain(tiny.recipe(), PRETRAINING, device=CPU)
    dense = {name: values.detach().clone() for name, values in pretrained_part(run.ranker).items()}
    return Backbone(rows=run.tables.rows(), state=run.tables.state(), dense=dense)


def trained(recipe: Recipe, backbone: Backbone, columns: Columns = COLUMNS, passes: Passes | None = None) -> Run:
    return train(recipe, columns, HELDOUT, backbone, device=CPU, passes=passes)


def fingerprint_of(backbone: Backbone) -> str:
    """The fingerprint of untouched tables that were loaded from a backbone."""
    sizes = replace(tiny.recipe().tables, num_user_rows=len(backbone.rows["user"]))
    tables = ShardedTables(sizes, learning_rate=0.1, device=CPU, seed=99)
    tables.load_rows(backbone.rows)
    tables.load_state(backbone.state)
    return tables.fingerprint()


MEMORABLE = {
    "tables.num_user_rows": "2003",
    "groups.tables.learning_rate": "0.3",
    "guard.num_rows": "9999",
    "lookup.mode": "sync",
}


def memorable() -> Columns:
    """A window in which every slate is a user of its own, all saved or none: what `MEMORABLE` tables learn by heart."""
    columns = tiny.columns(num_slates=100, seed=4)
    slate = np.unique(columns.request_id, return_inverse=True)[1].astype(np.int64)
    labels = np.random.default_rng(0).integers(2, size=(100, 1)).repeat(2, axis=1)
    return replace(columns, user_id=slate, labels=labels[slate].astype(np.float32))


def memorable_backbone() -> Backbone:
    """Random rows and network of those sizes."""
    torch.manual_seed(0)
    sizes = {"user": 2003, "pin": 33}
    return Backbone(
        rows={table: torch.randn(rows, 4) / 2 for table, rows in sizes.items()},
        state={table: torch.zeros(rows) for table, rows in sizes.items()},
        dense=pretrained_part(Ranker(tiny.recipe(MEMORABLE))),
    )


def dense_of(run: Run) -> dict[str, Tensor]:
    """Copies of the network's parameters and buffers."""
    return {name: values.detach().clone() for name, values in run.ranker.state_dict().items()}


def without_speed(history: RunHistory) -> dict[str, Any]:
    """A history but for what a clock said."""
    content = history.to_dict()
    clocked = {"rows_per_s": None, "duration_s": None, "lookup": None, "reader_wait_s": None}
    return {**content, "epochs": [{**epoch, **clocked} for epoch in content["epochs"]]}


def assert_same_bits(found: Run, wanted: Run) -> None:
    assert found.tables.fingerprint() == wanted.tables.fingerprint()
    assert_same_tensors(found.ranker.state_dict(), wanted.ranker.state_dict())
    assert without_speed(found.history) == without_speed(wanted.history)


def assert_same_tensors(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert torch.equal(found[name], values), name
