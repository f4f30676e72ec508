"""The named ways to train.

``delayed`` is the method: from the second pass on, a row already holds the label of the very example that reads it, so
tables should see each label once, in the last pass. ``cotrain`` shows the harm that this avoids (Zhang et al., CIKM
2022), ``adapt_then_freeze`` that the order matters, ``frozen`` that adapting is worth it.
"""

import math
from collections.abc import Callable

from trainer.recipe import Arm, ThawConfig
from trainer.thaw.schedule import ThawSchedule


def _single_epoch(_: ThawConfig) -> ThawSchedule:
    return ThawSchedule(num_epochs=1, adapt_from=0.0)


def _cotrain(config: ThawConfig) -> ThawSchedule:
    return ThawSchedule(num_epochs=config.num_epochs, adapt_from=0.0)


def _frozen(config: ThawConfig) -> ThawSchedule:
    return ThawSchedule(num_epochs=config.num_epochs, adapt_from=math.inf)


def _delayed(config: ThawConfig) -> ThawSchedule:
    thaw_point = config.num_epochs - 1.0 if config.thaw_point is None else config.thaw_point
    return ThawSchedule(num_epochs=config.num_epochs, adapt_from=thaw_point)


def _adapt_then_freeze(config: ThawConfig) -> ThawSchedule:
    return ThawSchedule(num_epochs=config.num_epochs, adapt_from=0.0, adapt_until=1.0)


ARMS: dict[Arm, Callable[[ThawConfig], ThawSchedule]] = {
    "single_epoch": _single_epoch,
    "cotrain": _cotrain,
    "frozen": _frozen,
    "delayed": _delayed,
    "adapt_then_freeze": _adapt_then_freeze,
}


def schedule_of(config: ThawConfig) -> ThawSchedule:
    """The schedule of a recipe's arm."""
    return ARMS[config.arm](config)
