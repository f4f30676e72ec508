"""When a group of parameters trains and how fast, as pure functions of training progress."""

import math
from dataclasses import dataclass

from trainer.recipe import GroupConfig


@dataclass(frozen=True, kw_only=True)
class ThawSchedule:
    """A group adapts while ``adapt_from <= progress < adapt_until``; it is frozen before and after.

    Attributes:
        num_epochs: Passes over the window.
        adapt_from: Thaw point in epochs; fractions allowed, infinity for never.
        adapt_until: End of the adaptation in epochs.
    """

    num_epochs: int
    adapt_from: float = 0.0
    adapt_until: float = math.inf

    def adapts_at(self, progress: float) -> bool:
        """Whether the group adapts in the step that begins at ``progress`` epochs."""
        return self.adapt_from <= progress < self.adapt_until

    @property
    def thaw_epoch(self) -> float | None:
        """The thaw point in epochs, or None when the group never thaws or was never frozen before it."""
        return self.adapt_from if 0 < self.adapt_from < self.num_epochs else None


@dataclass(frozen=True, kw_only=True)
class GroupSchedule:
    """When a group adapts, and the size of its steps then.

    Attributes:
        phase: When it adapts.
        config: Step size, warm-up from the group's thaw on, and decay.
    """

    phase: ThawSchedule
    config: GroupConfig

    @classmethod
    def of(cls, config: GroupConfig, *, num_epochs: int) -> "GroupSchedule":
        """The schedule that a recipe's section describes by itself."""
        until = math.inf if config.freeze_point is None else config.freeze_point
        phase = ThawSchedule(num_epochs=num_epochs, adapt_from=config.thaw_point or 0.0, adapt_until=until)
        return cls(phase=phase, config=config)

    def adapts_at(self, progress: float) -> bool:
        """Whether the group adapts in the step that begins at ``progress`` epochs."""
        return self.phase.adapts_at(progress)

    def learning_rate_at(self, progress: float) -> float:
        """Step size of the step that begins at ``progress`` epochs, given that the group adapts in it."""
        begin = self.phase.adapt_from
        end = min(float(self.phase.num_epochs), self.phase.adapt_until)
        warm = begin + self.config.warmup_epochs
        if progress < warm:
            return self.config.learning_rate * (progress - begin) / self.config.warmup_epochs
        done = (progress - warm) / (end - warm) if end > warm else 0.0
        match self.config.decay:
            case "none":
                share = 1.0
            case "linear":
                share = 1.0 - done
            case "cosine":
                share = 0.5 * (1.0 + math.cos(math.pi * done))
        return self.config.learning_rate * share
