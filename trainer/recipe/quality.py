"""Section on the data of a window: what counts as odd about its newest days, and what follows from it."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from trainer.recipe.types import STRICT_KEYS, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

_Share = Annotated[float, Field(ge=0, le=1)]
_MoreThanOne = Annotated[float, Field(gt=1)]


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class QualityConfig:
    """How a window's newest days are held against the days before them (``trainer/windows/quality``).

    Attributes:
        on_breach: What a breach leads to: ``warn`` trains on and says so, ``stop`` ends the run before it trains.
        num_days: Newest days to check: with 2, the held-out day and the training day that is new to the window.
        min_trailing_days: Days that must lie before a day for it to be judged.
        max_volume_ratio: Rows may be this many times their trailing median, and no less than one such part of it.
        max_label_change: A label's rate may differ from its trailing median by this share of it.
        max_z: Volume and label rates must also lie this many robust standard deviations off before they count as odd.
        max_psi: Population stability index of a feature against the trailing days, over ten groups.
        max_mean_shift: Shift of a feature's mean, in standard deviations of the trailing days.
        max_range_growth: Values may lie outside the trailing range by this share of its width.
        max_null_increase: Share of nulls in a column above the trailing median.
        max_new_pin_change: Share of the day's pins that no trailing day showed, against that of earlier days.
        max_duplicate_increase: Share of raw rows dropped as duplicates, above the trailing median.
        max_quarantine_increase: Share of raw rows put into quarantine, above the trailing median.
        max_empty_hours: Hours without a row, of those in which every trailing day has rows.
    """

    on_breach: Literal["warn", "stop"] = "warn"
    num_days: PositiveInt = 2
    min_trailing_days: PositiveInt = 3
    max_volume_ratio: _MoreThanOne = 2.0
    max_label_change: PositiveFloat = 0.25
    max_z: PositiveFloat = 4.0
    max_psi: PositiveFloat = 0.25
    max_mean_shift: PositiveFloat = 0.5
    max_range_growth: NonNegativeFloat = 0.5
    max_null_increase: _Share = 0.01
    max_new_pin_change: _Share = 0.1
    max_duplicate_increase: _Share = 0.01
    max_quarantine_increase: _Share = 0.0005
    max_empty_hours: NonNegativeInt = 0
