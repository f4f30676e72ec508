"""The scorer against the scores of training's own evaluation, on the frames that people and MLflow hand to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from tests.trainer import tiny
from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader
from trainer.checkpoint import write_checkpoint
from trainer.errors import InputError
from trainer.model.backbone import Backbone, pretrained_part
from trainer.runs import pretrain, train
from trainer.scoring import score
from trainer.serving import Scorer, save_model

INPUTS = ["user_id", "pin_id", "user_features", "pin_features", "history", "history_actions"]
HELDOUT = tiny.table(num_slates=30, seed=2)
Trained = tuple[Path, NDArray[np.float32]]


@pytest.fixture(scope="module")
def trained(one_rank: torch.device, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A saved model, and the probabilities (R, H) that training's evaluation gave to the held-out rows."""
    recipe = tiny.recipe({"model.dropout": "0.3"})
    columns, heldout = tiny.columns(num_slates=20, seed=1), Columns.of_table(HELDOUT, tiny.recipe())
    pretraining = pretrain(recipe, columns, device=one_rank)
    tables = pretraining.tables
    backbone = Backbone(rows=tables.rows(), state=tables.state(), dense=pretrained_part(pretraining.ranker))
    run = train(recipe, columns, heldout, backbone, device=one_rank)
    reader = SlateReader(heldout, batch_rows=50, seed=0)
    scores = score(run.ranker, run.tables, reader, tables=recipe.tables, device=one_rank)
    folder = tmp_path_factory.mktemp("serving") / "model"
    save_model(folder, recipe, run.ranker, run.tables.rows())
    return folder, scores


@pytest.fixture(scope="module")
def scorer(trained: Trained) -> Scorer:
    return Scorer.load(str(trained[0]))


@pytest.fixture
def frame() -> pd.DataFrame:
    return HELDOUT.select(INPUTS).to_pandas()


def test_it_scores_as_training_evaluated(scorer: Scorer, trained: Trained, frame: pd.DataFrame) -> None:
    scores = scorer.predict(frame)
    assert list(scores.columns) == ["save", "click"]
    assert (scores.dtypes == np.float32).all()
    np.testing.assert_allclose(scores.to_numpy(), trained[1], atol=1e-6)
    assert scores["save"].std() > 1e-3
    assert scores.to_numpy().min() > 0
    assert scores.to_numpy().max() < 1


def test_it_keeps_the_index(scorer: Scorer, frame: pd.DataFrame) -> None:
    names = [f"row {number}" for number in range(len(frame))]
    assert list(scorer.predict(frame.set_axis(names)).index) == names
    repeated = frame.head(3).set_axis([7, 7, 1])
    assert list(scorer.predict(repeated).index) == [7, 7, 1]


def test_the_order_of_rows_and_of_columns_changes_nothing(scorer: Scorer, frame: pd.DataFrame) -> None:
    wanted = scorer.predict(frame)
    mixed = frame.sample(frac=1, random_state=1)[INPUTS[::-1]].assign(other="ignored", save=True)
    pd.testing.assert_frame_equal(scorer.predict(mixed), wanted.loc[mixed.index], rtol=0, atol=1e-6)


def test_one_row_is_enough_and_none_gives_none(scorer: Scorer, frame: pd.DataFrame) -> None:
    wanted = scorer.predict(frame)
    for row in (0, 17):
        pd.testing.assert_frame_equal(scorer.predict(frame.iloc[[row]]), wanted.iloc[[row]], rtol=0, atol=1e-6)
    empty = scorer.predict(frame.head(0))
    assert empty.empty
    assert list(empty.columns) == ["save", "click"]


def test_a_frame_larger_than_a_step_is_scored_whole(scorer: Scorer, frame: pd.DataFrame) -> None:
    large = pd.concat([frame] * (4096 // len(frame) + 2), ignore_index=True)
    assert len(large) > 4096
    wanted = scorer.predict(frame).to_numpy()
    found = scorer.predict(large).to_numpy()
    np.testing.assert_allclose(found, wanted[np.arange(len(large)) % len(frame)], atol=1e-6)


@pytest.mark.parametrize(
    "convert",
    [
        pytest.param(lambda values: np.asarray(values, np.int32), id="int32 arrays, as MLflow hands over"),
        pytest.param(lambda values: np.asarray(values, np.int64), id="int64 arrays"),
        pytest.param(lambda values: [int(value) for value in values], id="lists"),
        pytest.param(lambda values: tuple(int(value) for value in values), id="tuples"),
    ],
)
def test_histories_come_in_many_types(scorer: Scorer, frame: pd.DataFrame, convert: Callable[[Any], Any]) -> None:
    other = frame.assign(history=frame["history"].map(convert), history_actions=frame["history_actions"].map(convert))
    pd.testing.assert_frame_equal(scorer.predict(other), scorer.predict(frame))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, list])
def test_features_come_in_many_types(scorer: Scorer, frame: pd.DataFrame, dtype: Any) -> None:
    def convert(values: Any) -> Any:
        return [float(value) for value in values] if dtype is list else np.asarray(values, dtype)

    features = {name: frame[name].map(convert) for name in ("user_features", "pin_features")}
    pd.testing.assert_frame_equal(scorer.predict(frame.assign(**features)), scorer.predict(frame))


def test_ids_may_be_narrow_or_as_wide_as_the_contract_allows(scorer: Scorer, frame: pd.DataFrame) -> None:
    narrow = frame.assign(user_id=frame["user_id"].astype(np.int32), pin_id=frame["pin_id"].astype(np.int16))
    pd.testing.assert_frame_equal(scorer.predict(narrow), scorer.predict(frame))
    assert scorer.predict(frame.head(2).assign(user_id=2**63 - 1, pin_id=2**63 - 1)).notna().all(axis=None)


def test_history_beyond_what_the_model_reads_is_left_out(scorer: Scorer, frame: pd.DataFrame) -> None:
    assert frame["history"].map(len).max() > tiny.HISTORY_LENGTH
    cut = {
        name: frame[name].map(lambda values: values[: tiny.HISTORY_LENGTH]) for name in ("history", "history_actions")
    }
    pd.testing.assert_frame_equal(scorer.predict(frame.assign(**cut)), scorer.predict(frame))


def with_value(frame: pd.DataFrame, name: str, row: int, value: object) -> pd.DataFrame:
    values = frame[name].tolist()
    values[row] = value
    return frame.assign(**{name: pd.Series(values, dtype=object)})


def refusal(scorer: Scorer, frame: pd.DataFrame) -> str:
    with pytest.raises(InputError) as caught:
        scorer.predict(frame)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", INPUTS)
def test_a_missing_column_is_named(scorer: Scorer, frame: pd.DataFrame, name: str) -> None:
    assert f"column '{name}' is missing" in refusal(scorer, frame.drop(columns=name))


@pytest.mark.parametrize(("name", "wanted"), [("user_features", 2), ("pin_features", 3)])
@pytest.mark.parametrize("length", [0, 1, 9])
def test_features_of_another_length_are_named(
    scorer: Scorer, frame: pd.DataFrame, name: str, wanted: int, length: int
) -> None:
    message = refusal(scorer, with_value(frame, name, 5, np.zeros(length, np.float32)))
    assert f"column '{name}', row 5: {length} values where the recipe has {wanted}" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user_id", "someone"),
        ("pin_id", None),
        ("user_features", None),
        ("pin_features", ["red", "green", "blue"]),
        ("user_features", [1.0, float("nan")]),
        ("history", ["red"]),
        ("history", [-1]),
        ("history", None),
        ("history_actions", [300]),
        ("history_actions", [-1]),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_column(
    scorer: Scorer, frame: pd.DataFrame, name: str, value: object
) -> None:
    assert f"column '{name}'" in refusal(scorer, with_value(frame, name, 3, value))


def test_a_history_without_its_actions_is_refused(scorer: Scorer, frame: pd.DataFrame) -> None:
    short = with_value(with_value(frame, "history", 4, [1, 2, 3]), "history_actions", 4, [1, 2])
    assert "column 'history_actions', row 4: 2 actions for 3 pins of history" in refusal(scorer, short)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no finished model here"):
        Scorer.load(tmp_path)
    write_checkpoint(tmp_path, kind="backbone", facts={}, parts={})
    with pytest.raises(InputError, match="holds a backbone"):
        Scorer.load(tmp_path)
