"""Runs on windows that are larger than memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer import tiny
from tests.trainer.batches.days import Shape, write_days
from tests.trainer.tiny_runs import COLUMNS, CPU, HELDOUT, assert_same_bits, recipe
from trainer.batches.slates import slate_starts
from trainer.batches.source import Source
from trainer.batches.window import Window, open_window
from trainer.model.backbone import Backbone
from trainer.recipe import Recipe
from trainer.runs import evaluate, pretrain, train

SMALL = {"training.shuffle_rows": "50"}


def window(folder: Path, table: pa.Table, of: Recipe) -> Source:
    sizes = np.diff(slate_starts(table["request_id"].to_numpy()))
    shape = Shape(sizes=tuple(sizes.tolist()), day_cuts=(len(sizes) // 3,), group_rows=20)
    return open_window(write_days(folder, table, shape), of)


@pytest.fixture
def rows(tmp_path: Path) -> Source:
    found = window(tmp_path / "rows", tiny.table(num_slates=40, seed=1), recipe("delayed", SMALL))
    assert isinstance(found, Window)
    return found


def test_a_run_reads_buffers_and_is_the_same_each_time(
    tiny_backbone: Backbone, one_rank: None, rows: Source, tmp_path: Path
) -> None:
    settings = recipe("delayed", SMALL)
    heldout = window(tmp_path / "heldout", tiny.table(num_slates=30, seed=2), settings)
    assert isinstance(heldout, Window)
    first, again = (train(settings, rows, heldout, tiny_backbone, device=CPU) for _ in range(2))
    assert_same_bits(first, again)
    assert [epoch.phase for epoch in first.history.epochs] == ["frozen", "adapting"]
    assert all(epoch.reader_wait_s > 0.0 for epoch in first.history.epochs)
    in_memory = train(settings, COLUMNS, HELDOUT, tiny_backbone, device=CPU)
    assert first.history.to_dict()["num_steps"] == pytest.approx(in_memory.history.to_dict()["num_steps"], abs=2)


def test_held_out_rows_are_judged_alike_in_memory_and_on_disk(
    tiny_backbone: Backbone, one_rank: None, rows: Source, tmp_path: Path
) -> None:
    settings = recipe("single_epoch", SMALL)
    run = train(settings, rows, None, tiny_backbone, device=CPU)
    heldout = window(tmp_path / "heldout", tiny.table(num_slates=30, seed=2), settings)
    judged = [
        evaluate(settings, run.ranker, run.tables, found, shown=shown, device=CPU)
        for found, shown in ((heldout, rows), (HELDOUT, COLUMNS))
    ]
    assert judged[0] == judged[1]
    assert judged[0]["save_auc"] > 0.0


def test_a_backbone_is_pretrained_on_buffers(one_rank: None, rows: Source) -> None:
    run = pretrain(recipe("delayed", SMALL), rows, device=CPU)
    in_memory = pretrain(recipe("delayed", SMALL), COLUMNS, device=CPU)
    for name in ("user_features", "pin_features"):
        found, wanted = (getattr(each.ranker, name) for each in (run, in_memory))
        np.testing.assert_allclose(found.mean_F, wanted.mean_F, rtol=1e-6)
        np.testing.assert_allclose(found.std_F, wanted.std_F, rtol=1e-6)
    assert np.isfinite(run.history.epochs[0].loss)
