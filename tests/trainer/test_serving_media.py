"""A served model that looks at images and titles."""

import shutil
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from tests.trainer import tiny
from tests.trainer.model.vlm import tiny_clip
from tests.trainer.windows.partitions import write_partition
from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import PlainTables, num_rows_of
from trainer.errors import InputError
from trainer.model.ranker import Ranker
from trainer.recipe import Recipe
from trainer.registry.package import input_example, signature
from trainer.scoring import score
from trainer.serving import Scorer, save_model

TABLE = tiny.table_with_media(num_slates=30, seed=2)
Served = tuple[Scorer, NDArray[np.float32]]


@pytest.fixture(scope="module", params=["builtin", "huggingface"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A loaded model, and the scores that its ranker gave before it was saved; the encoder's folder is gone."""
    folder = tmp_path_factory.mktemp("served")
    settings = tiny.BUILTIN_VLM
    if request.param == "huggingface":
        clip = tiny_clip.write_clip(folder / "clip")
        settings = {"vlm.encoder": "huggingface", "vlm.path": str(clip), "vlm.image_pixels": "8"}
    recipe = tiny.recipe(settings)
    torch.manual_seed(1)
    ranker = Ranker(recipe)
    assert ranker.vlm is not None
    torch.nn.init.normal_(ranker.vlm.project.weight)
    tables = {name: torch.randn(rows, recipe.tables.dim) for name, rows in num_rows_of(recipe.tables).items()}
    scores = scores_of(ranker, recipe, tables)
    save_model(folder / "model", recipe, ranker, tables)
    shutil.rmtree(folder / "clip", ignore_errors=True)
    shutil.copytree(folder / "model", folder / "copied")
    shutil.rmtree(folder / "model")
    return Scorer.load(folder / "copied"), scores


def scores_of(ranker: Ranker, recipe: Recipe, tables: dict[str, torch.Tensor]) -> NDArray[np.float32]:
    columns = Columns.of_table(TABLE, recipe)
    reader = SlateReader(columns, batch_rows=50, seed=0)
    return score(ranker, PlainTables(tables), reader, tables=recipe.tables, device=torch.device("cpu"))


@pytest.fixture
def frame(served: Served) -> pd.DataFrame:
    return TABLE.select(served[0].columns).to_pandas()


def test_a_saved_model_stands_alone(served: Served, frame: pd.DataFrame) -> None:
    scorer, wanted = served
    for _ in range(2):  # the second time from the cache
        np.testing.assert_allclose(scorer.predict(frame).to_numpy(), wanted, atol=1e-5)


def test_images_and_titles_change_scores(served: Served, frame: pd.DataFrame) -> None:
    scorer, _ = served
    before = scorer.predict(frame)
    for name in ("image", "text"):
        other = dict(zip(frame["pin_id"], frame[name], strict=True))
        turned = frame.assign(**{name: [other[pin] for pin in frame["pin_id"][::-1]]})
        assert not np.allclose(before, scorer.predict(turned), atol=1e-5)


@pytest.mark.parametrize("absent", [None, float("nan")])
def test_absent_images_and_titles_are_scored(served: Served, frame: pd.DataFrame, absent: object) -> None:
    nothing = pd.Series([absent] * len(frame), dtype=object)
    assert served[0].predict(frame.assign(image=nothing, text=nothing)).notna().all(axis=None)


@pytest.mark.parametrize("name", ["image", "text"])
def test_a_frame_without_media_is_refused(served: Served, frame: pd.DataFrame, name: str) -> None:
    with pytest.raises(InputError, match=rf"^frame to score: column '{name}' is missing"):
        served[0].predict(frame.drop(columns=name))


def test_an_image_that_cannot_be_decoded_is_refused(served: Served, frame: pd.DataFrame) -> None:
    images = frame["image"].tolist()
    images[4] = b"no image"
    with pytest.raises(InputError, match=r"^frame to score: column 'image', pin \d+: cannot be decoded"):
        served[0].predict(frame.assign(image=images, pin_id=np.arange(len(frame))))


def test_a_changed_description_is_refused(tmp_path: Path) -> None:
    clip = tiny_clip.write_clip(tmp_path / "clip")
    recipe = tiny.recipe({"vlm.encoder": "huggingface", "vlm.path": str(clip)})
    tables = {name: torch.zeros(rows, recipe.tables.dim) for name, rows in num_rows_of(recipe.tables).items()}
    save_model(tmp_path / "model", recipe, Ranker(recipe), tables)
    (tmp_path / "model" / "encoder" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"config\.json: missing, or its checksum is not the model's"):
        Scorer.load(tmp_path / "model")


def test_the_registered_model_names_image_and_text(served: Served, tmp_path: Path) -> None:
    scorer, _ = served
    names = [column.name for column in signature(scorer.recipe).inputs]
    assert names == list(scorer.columns)
    day = write_partition(tmp_path, date(2024, 1, 1), TABLE, num_slates=30)
    assert scorer.predict(input_example(scorer.recipe, day)).notna().all(axis=None)
