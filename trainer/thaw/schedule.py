"""When the tables adapt, as a pure function of training progress."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ThawSchedule:
    """Tables adapt while ``adapt_from <= progress < adapt_until``; they are frozen before and after.

    Attributes:
        num_epochs: Passes over the window.
        adapt_from: Thaw point in epochs; fractions allowed, infinity for never.
        adapt_until: End of the adaptation in epochs.
    """

    num_epochs: int
    adapt_from: float
    adapt_until: float = math.inf

    def adapts_at(self, progress: float) -> bool:
        """Whether tables adapt in the step that begins at ``progress`` epochs."""
        return self.adapt_from <= progress < self.adapt_until

    @property
    def thaw_epoch(self) -> float | None:
        """The thaw point in epochs, or None when the tables never thaw or were never frozen before it."""
        return self.adapt_from if 0 < self.adapt_from < self.num_epochs else None
