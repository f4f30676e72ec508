"""Candidate and champion on the same rows, where they look at different columns."""

import json
from datetime import date
from pathlib import Path

import pytest
import torch

from components.evaluate import comparison
from components.run import Run
from tests.trainer import tiny
from tests.trainer.windows.partitions import write_partition
from trainer.embeddings.lookup import num_rows_of
from trainer.errors import InputError
from trainer.model.ranker import Ranker
from trainer.recipe import Recipe
from trainer.serving import save_model
from trainer.windows.manifest import assemble_window

LOOKING, BLIND = tiny.recipe(tiny.BUILTIN_VLM), tiny.recipe()


def a_window(store: Path, *, without: tuple[str, ...] = ()) -> str:
    """A day to train on and one to hold out."""
    days: list[str] = []
    for day in (date(2024, 1, 1), date(2024, 1, 2)):
        folder = store / f"dt={day}" / "0123456789abcdef"
        table = tiny.table_with_media(num_slates=60)
        days.extend(write_partition(folder, day, table.drop_columns(list(without)), num_slates=60).paths)
    return assemble_window(days, str(store), has_heldout=True)


def a_model(folder: Path, recipe: Recipe) -> Path:
    torch.manual_seed(0)
    tables = {name: torch.randn(rows, recipe.tables.dim) for name, rows in num_rows_of(recipe.tables).items()}
    save_model(folder, recipe, Ranker(recipe), tables)
    return folder


@pytest.mark.parametrize(("candidate", "champion"), [(LOOKING, BLIND), (BLIND, LOOKING), (LOOKING, None)])
def test_each_model_gets_the_columns_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, candidate: Recipe, champion: Recipe | None
) -> None:
    a_model(tmp_path / "training" / "model", candidate)
    found = ("1", str(a_model(tmp_path / "champion", champion))) if champion else None
    # Registering a champion for this would take half a minute; the registry's own tests fetch one.
    monkeypatch.setattr(comparison, "fetch_champion", lambda *_: found)
    run = Run(recipe=candidate, date=date(2024, 1, 3), store=str(tmp_path))
    out = tmp_path / "evaluation.json"
    comparison.compare(run, a_window(tmp_path / "store"), str(tmp_path / "training"), "unused", str(out))
    assert ("champion" in json.loads(out.read_text())) and bool(json.loads(out.read_text())["lift"]) == bool(champion)


def test_a_day_without_images_is_refused_for_a_model_that_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_model(tmp_path / "training" / "model", LOOKING)
    monkeypatch.setattr(comparison, "fetch_champion", lambda *_: None)
    run = Run(recipe=LOOKING, date=date(2024, 1, 3), store=str(tmp_path))
    window = a_window(tmp_path / "store", without=("image",))
    with pytest.raises(InputError, match="column 'image' is missing"):
        comparison.compare(run, window, str(tmp_path / "training"), "unused", str(tmp_path / "out.json"))
