"""A trained ranker as one folder, and as a scorer of frames in the log contract."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from trainer.batches.columns import Columns
from trainer.batches.media import MEDIA_COLUMNS, require_media
from trainer.batches.reader import SlateReader
from trainer.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from trainer.embeddings.lookup import PlainTables
from trainer.errors import InputError
from trainer.model.ranker import Ranker
from trainer.model.vlm.folder import check_description, copy_description, encoder_folder
from trainer.recipe import Recipe
from trainer.scoring import score
from trainer.windows.contract import EXTRA_TYPES, value_problems

KIND = "model"
_BATCH_ROWS = 4096
_FRAME = "frame to score"
_ENCODER = "encoder"  # folder within a model's: what a Hugging Face encoder is, without its weights
_COLUMNS = {
    "user_id": pa.int64(),
    "pin_id": pa.int64(),
    "user_features": pa.list_(pa.float32()),
    "pin_features": pa.list_(pa.float32()),
    "history": pa.list_(pa.int64()),
    "history_actions": pa.list_(pa.int8()),
}


def save_model(folder: str | Path, recipe: Recipe, ranker: Ranker, tables: Mapping[str, Tensor]) -> Checkpoint:
    """Writes a ranker and its whole tables; `Scorer.load` reads them back.

    A Hugging Face encoder's configuration and tokenizer travel with it; its weights are among the ranker's.
    """
    facts: dict[str, Any] = {"recipe": recipe.to_json()}
    if recipe.vlm.path is not None:
        facts[_ENCODER] = copy_description(encoder_folder(recipe.vlm.path), Path(folder) / _ENCODER)
    dense = {name: tensor.detach().cpu() for name, tensor in ranker.state_dict().items()}
    return write_checkpoint(folder, kind=KIND, facts=facts, parts={"dense": dense, "tables": tables})


class Scorer:
    """Scores impressions in one process, on CPU, as training's own evaluation would."""

    def __init__(self, recipe: Recipe, ranker: Ranker, tables: Mapping[str, Tensor]) -> None:
        self.recipe = recipe
        self._ranker = ranker
        self._tables = PlainTables(tables)

    @classmethod
    def load(cls, folder: str | Path) -> "Scorer":
        """Reads what `save_model` wrote.

        Raises:
            InputError: The folder is no finished model, or a file in it was changed.
        """
        checkpoint = read_checkpoint(folder, kind=KIND)
        recipe = Recipe.from_json(checkpoint.facts["recipe"])
        if recipe.vlm.path is not None:
            encoder = Path(folder) / _ENCODER
            check_description(encoder, checkpoint.facts[_ENCODER])
            recipe = replace(recipe, vlm=replace(recipe.vlm, path=str(encoder)))
        ranker = Ranker(recipe, is_encoder_pretrained=False)
        ranker.load_state_dict(checkpoint.tensors("dense"))
        ranker.freeze_vlm(True)
        return cls(recipe, ranker, checkpoint.tensors("tables"))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log contract that `predict` reads."""
        return tuple(_COLUMNS) if self.recipe.vlm.encoder == "none" else (*_COLUMNS, *MEDIA_COLUMNS)

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Probabilities of every label.

        Args:
            frame: Columns ``user_id``, ``pin_id`` (int64) and ``user_features``, ``pin_features``, ``history``,
                ``history_actions`` (lists); a model with a vision-language encoder reads ``image`` (PNG, JPEG or WebP
                bytes) and ``text`` too, each of which may be None. Other columns are ignored.

        Returns:
            One float32 column a label, with the index of ``frame``.

        Raises:
            InputError: A column is missing or of another type, or a value breaks the log contract: a feature list of
                another length than the model's, say.
        """
        labels = self.recipe.logs.labels
        if frame.empty:
            return pd.DataFrame(np.empty((0, len(labels)), dtype=np.float32), index=frame.index, columns=list(labels))
        columns = Columns.of_table(self._table(frame), self.recipe, _FRAME)
        reader = SlateReader(columns, batch_rows=_BATCH_ROWS, seed=0)
        scores = score(self._ranker, self._tables, reader, tables=self.recipe.tables, device=torch.device("cpu"))
        return pd.DataFrame(scores, index=frame.index, columns=list(labels))

    def _table(self, frame: pd.DataFrame) -> pa.Table:
        table = pa.table({name: _array(frame, name, kind) for name, kind in _COLUMNS.items()})
        problems = value_problems(table, self.recipe.logs, date.min, _FRAME)  # the day is for `ts`, which is not read
        if problems:
            raise InputError(problems[0])
        if self.recipe.vlm.encoder != "none":
            require_media(list(frame.columns), _FRAME)
            for name in MEDIA_COLUMNS:
                table = table.append_column(name, _array(frame, name, EXTRA_TYPES[name]))
        # Rows are scored one by one: each is its own slate, and the order of rows is kept.
        return table.append_column("request_id", pa.array(np.arange(len(frame))))


def _array(frame: pd.DataFrame, name: str, kind: pa.DataType) -> pa.Array:
    if name not in frame.columns:
        raise InputError(f"{_FRAME}: column '{name}' is missing; see the log contract in the README")
    values = frame[name].tolist() if pa.types.is_list(kind) else frame[name].to_numpy()
    try:
        return pa.array(values, kind, from_pandas=name in MEDIA_COLUMNS)  # where NaN may stand for what is absent
    except (pa.ArrowException, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{_FRAME}: column '{name}' holds no {kind} ({reason}); cast it") from None
