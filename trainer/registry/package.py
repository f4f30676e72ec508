"""A trained model folder as an MLflow model: signature, a real input example, models-from-code, nothing pickled."""

from importlib.metadata import version
from pathlib import Path

import mlflow.pyfunc
import pandas as pd
from mlflow.entities import LoggedModel
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import Array, ColSpec, DataType, Schema

from trainer.recipe import Recipe
from trainer.storage.filesystem import open_parquet
from trainer.windows.manifest import Partition

MODEL_FOLDER = "artifacts/model"
"""Where a registered version holds the folder that `trainer.serving.Scorer.load` reads."""

_NUM_EXAMPLE_ROWS = 2
_INPUTS: dict[str, DataType | Array] = {
    "user_id": DataType.long,
    "pin_id": DataType.long,
    "user_features": Array(DataType.float),
    "pin_features": Array(DataType.float),
    "history": Array(DataType.long),
    # MLflow knows no int8: what it hands to the model is int32.
    "history_actions": Array(DataType.integer),
}
_MEDIA: dict[str, DataType | Array] = {"image": DataType.binary, "text": DataType.string}


def signature(recipe: Recipe) -> ModelSignature:
    """What the served model takes, columns of the log contract, and returns, one probability a label."""
    return ModelSignature(
        inputs=Schema([ColSpec(type_, name) for name, type_ in _inputs(recipe).items()]),
        outputs=Schema([ColSpec(DataType.double, label) for label in recipe.logs.labels]),
    )


def _inputs(recipe: Recipe) -> dict[str, DataType | Array]:
    return _INPUTS if recipe.vlm.encoder == "none" else _INPUTS | _MEDIA


def input_example(recipe: Recipe, partition: Partition) -> pd.DataFrame:
    """The first rows of a prepared day, with the columns that the model takes."""
    names = list(_inputs(recipe))
    with open_parquet(partition.files[0]) as file:
        return next(file.iter_batches(_NUM_EXAMPLE_ROWS, columns=names)).to_pandas()[names]


def save_package(recipe: Recipe, model_dir: Path, example: pd.DataFrame, logged: LoggedModel, out: Path) -> None:
    """Writes the MLflow model to the new folder `out`.

    The one requirement is this distribution at its version: its locks say the rest, and inferring requirements would
    load the model and ask the network.

    Args:
        recipe: The recipe of the run.
        model_dir: Trained model; its folder is named ``model``.
        example: Rows as `input_example` returns them.
        logged: MLflow's entity that the files will belong to.
        out: Folder to make.
    """
    mlflow.pyfunc.save_model(
        str(out),
        python_model=str(Path(__file__).with_name("served.py")),
        artifacts={"model": str(model_dir)},
        signature=signature(recipe),
        input_example=example,
        pip_requirements=[f"thawline=={version('thawline')}"],
        mlflow_model=Model(
            artifact_path=logged.artifact_location,
            run_id=logged.source_run_id,
            model_uuid=logged.model_id,
            model_id=logged.model_id,
        ),
    )
