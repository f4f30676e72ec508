"""Arms with settings of their own, in one word: ``delayed``, ``delayed*3``, ``delayed@1.5``, ``cotrain+guard``."""

import re
from typing import get_args

from trainer.errors import InputError
from trainer.recipe import Arm, Recipe

_VARIANT = re.compile(r"(?P<arm>[a-z_]+)(?:\*(?P<passes>\d+))?(?:@(?P<thaw>\d+(?:\.\d+)?))?(?P<guard>\+guard)?")


def recipe_of(recipe: Recipe, variant: str) -> Recipe:
    """The recipe that trains by a variant.

    Args:
        recipe: Everything else.
        variant: An arm; then, in this order and each optional, ``*N`` for N passes, ``@P`` for a thaw point of P
            epochs, ``+guard`` for the canary's guard.

    Raises:
        InputError: It is no such word, there is no such arm, or the arm takes no thaw point.
    """
    match = _VARIANT.fullmatch(variant)
    if match is None or match["arm"] not in get_args(Arm):
        raise InputError(
            f"arm '{variant}': unknown; choose of {', '.join(get_args(Arm))}, as NAME[*PASSES][@THAW][+guard]"
        )
    settings = {"thaw.arm": match["arm"]}
    if match["passes"]:
        settings["thaw.num_epochs"] = match["passes"]
    if match["thaw"]:
        settings["groups.tables.thaw_point"] = match["thaw"]
    if match["guard"]:
        settings["guard.refreeze"] = "true"
    return recipe.override(settings)
