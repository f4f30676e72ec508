"""The backbone: pretrained tables and two-tower network, and the checks before a retrain starts from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainer.checkpoint import Checkpoint, read_checkpoint
from trainer.errors import InputError
from trainer.model.ranker import Ranker
from trainer.recipe import Recipe

KIND = "backbone"
_PRETRAINED = ("two_tower.", "user_features.", "pin_features.")


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """What a retrain starts from; tensors on CPU.

    Attributes:
        rows: Tables (R, D) float32 by name.
        state: Adagrad sums (R,) float32 by table.
        dense: Parameters and buffers of the ranker's pretrained parts.
    """

    rows: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    dense: Mapping[str, Tensor]


def shape_facts(recipe: Recipe) -> dict[str, Any]:
    """What a backbone and the recipe that loads it must agree on."""
    return {
        "num_user_rows": recipe.tables.num_user_rows,
        "num_pin_rows": recipe.tables.num_pin_rows,
        "dim": recipe.tables.dim,
        "hash_seed": recipe.tables.hash_seed,
        "num_user_features": recipe.logs.num_user_features,
        "num_pin_features": recipe.logs.num_pin_features,
    }


def open_backbone(folder: str, recipe: Recipe) -> Checkpoint:
    """Opens a backbone for a recipe, loading no tensor yet.

    Raises:
        InputError: It is unfinished or changed, or of other dimensions than the recipe's.
    """
    checkpoint = read_checkpoint(folder, kind=KIND)
    for name, wanted in shape_facts(recipe).items():
        if (found := checkpoint.facts.get(name)) != wanted:
            raise InputError(
                f"{folder}: backbone has {name} {found}, recipe '{recipe.name}' has {wanted}; "
                "set the recipe to it, or make another with `thawline pretrain`"
            )
    return checkpoint


def load_backbone(folder: str, recipe: Recipe) -> Backbone:
    """Loads all of a backbone; errors as in `open_backbone`."""
    checkpoint = open_backbone(folder, recipe)
    return Backbone(
        rows=checkpoint.tensors("tables"), state=checkpoint.tensors("state"), dense=checkpoint.tensors("dense")
    )


def pretrained_part(ranker: Ranker) -> dict[str, Tensor]:
    """The parameters and buffers that a backbone holds, by their names in the ranker."""
    return {name: tensor for name, tensor in ranker.state_dict().items() if name.startswith(_PRETRAINED)}


def load_pretrained_part(ranker: Ranker, dense: Mapping[str, Tensor]) -> None:
    """Copies a backbone's dense tensors into a ranker; the rest of the ranker stays as initialised."""
    missing, unexpected = ranker.load_state_dict(dict(dense), strict=False)
    assert not unexpected and not any(name.startswith(_PRETRAINED) for name in missing), (missing, unexpected)
