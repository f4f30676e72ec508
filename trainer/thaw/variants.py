"""Arms with settings of their own, in one word: ``delayed``, ``delayed*3``, ``delayed@1.5``, ``cotrain+guard``."""

import re
from typing import get_args

from trainer.errors import InputError
from trainer.recipe import Arm, Recipe

_VARIANT = re.compile(r"(?P<arm>[a-z_]+)(?:\*(?P<passes>\d+))?(?:@(?P<thaw>\d+(?:\.\d+)?))?(?P<guard>\+guard)?")


def recipe_of(recipe: Recipe, variant: str) -> Recipe:
    """The recipe that trains by a variant.

    Args:
        recipe: Everything else; of it, the tables' thaw and freeze points and the guard's switch give way to the word.
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
    if match["arm"] == "single_epoch" and match["passes"]:
        raise InputError(f"arm '{variant}': single_epoch makes one pass; leave out '*{match['passes']}'")
    settings = {
        "thaw.arm": match["arm"],
        "groups.tables.thaw_point": match["thaw"] or "null",
        "groups.tables.freeze_point": "null",
        "guard.refreeze": "true" if match["guard"] else "false",
    }
    return recipe.override(settings | ({"thaw.num_epochs": match["passes"]} if match["passes"] else {}))
