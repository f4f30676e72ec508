"""Sections on training: the loop, its lookups, and the schedule of each group of parameters."""

from typing import Literal

from pydantic.dataclasses import dataclass

from trainer.recipe.types import STRICT_KEYS, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class TrainingConfig:
    """The loop.

    Attributes:
        num_ranks: Processes that ``torchrun`` starts, one device each.
        batch_rows: Impressions a step, all ranks together; whole slates, so a step may hold a few more or less.
        num_micro_batches: Parts that the network runs one after another before a step's one update; each step is
            looked up at once. Less memory, same gradients but for negatives, which come from the same part.
        shuffle_rows: Impressions that a rank may hold in memory to shuffle among. A window or a held-out day of no more
            is read once; of a larger window a rank reads its slates anew in each pass, this buffer's and the next's
            being in memory.
        seed: Seed of initialisation, of the order of slates and of dropout.
        profile_steps: Steps of the last pass to trace, from its second on; 0 is none. The trace lies beside the run's
            history, as ``trace.json``, for https://ui.perfetto.dev.
    """

    num_ranks: PositiveInt = 1
    batch_rows: PositiveInt = 128
    num_micro_batches: PositiveInt = 1
    shuffle_rows: PositiveInt = 4_000_000
    seed: int = 0
    profile_steps: NonNegativeInt = 0


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class LookupConfig:
    """How rows are looked up across ranks, and when (``trainer/semisync``).

    Attributes:
        mode: ``sync`` looks up when a step begins. ``semi`` overlaps lookups with the network; rows are at most one
            update stale. ``exact`` does too, then reads again the rows that the last update touched: the same as
            ``sync``, bit for bit.
        frozen_depth: Batches that are read ahead while the tables are frozen, unless ``sync``.
        precision: Of rows on their way between ranks, and of their gradients (``bf16`` where rows are ``int8``).
    """

    mode: Literal["sync", "semi", "exact"] = "semi"
    frozen_depth: PositiveInt = 2
    precision: Literal["fp32", "fp16", "bf16", "int8"] = "fp32"


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class GroupConfig:
    """When a group of parameters trains, and how fast; points in time are epochs, fractions allowed.

    Attributes:
        learning_rate: Step size after the warm-up.
        thaw_point: Epochs after which the group trains; None is from the start, for the tables the arm's own.
        freeze_point: Epochs after which it stops; None is never, for the tables the arm's own.
        warmup_epochs: Epochs, from its thaw on, over which the step size rises linearly from zero.
        decay: Shape of the step size's fall to zero at its freeze or the run's end, after the warm-up.
    """

    learning_rate: PositiveFloat
    thaw_point: NonNegativeFloat | None = None
    freeze_point: NonNegativeFloat | None = None
    warmup_epochs: NonNegativeFloat = 0.0
    decay: Literal["none", "linear", "cosine"] = "none"

    def __post_init__(self) -> None:
        if self.freeze_point is not None and self.freeze_point <= (self.thaw_point or 0.0):
            raise ValueError(f"freeze_point {self.freeze_point} is not after thaw_point {self.thaw_point or 0.0}")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class GroupsConfig:
    """The groups of parameters.

    Attributes:
        tables: The ID tables; fused row-wise Adagrad.
        network: The dense network; Adam.
        vlm: The vision-language encoder; Adam.
    """

    tables: GroupConfig = GroupConfig(learning_rate=0.02)
    network: GroupConfig = GroupConfig(learning_rate=1e-3)
    vlm: GroupConfig = GroupConfig(learning_rate=1e-3)
