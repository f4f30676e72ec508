"""Sections on how tables adapt: the arm, the routes of gradients, published remedies and the guard."""

from typing import Literal

from pydantic.dataclasses import dataclass

from trainer.recipe.types import (
    STRICT_KEYS,
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Probability,
)

ScheduleArm = Literal["single_epoch", "cotrain", "frozen", "delayed", "adapt_then_freeze"]
RouteArm = Literal["contrastive_only", "no_contrastive", "head_only", "pairwise_only", "candidate_only", "history_only"]
RemedyArm = Literal["meda", "frequency_lr", "adam_ar", "slow_tables", "row_dropout", "row_decay", "min_count"]
Arm = Literal[ScheduleArm, RouteArm, RemedyArm, "frequency_thaw"]
StatePolicy = Literal["keep", "reset", "restore"]


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class PathsConfig:
    """What of one loss reaches the tables along each path: 1 is open, 0 closed, anything else scales.

    Attributes:
        candidate: Through the candidate's row.
        history: Through the rows of the history.
        user: Through the user's row.
    """

    candidate: NonNegativeFloat = 1.0
    history: NonNegativeFloat = 1.0
    user: NonNegativeFloat = 1.0


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class RoutesConfig:
    """The matrix of routes, loss by path; it concerns the tables alone, the network learns from every loss.

    Attributes:
        head: Of the binary cross-entropies.
        pairwise: Of the within-slate loss.
        contrastive: Of the in-batch softmax.
    """

    head: PathsConfig = PathsConfig()
    pairwise: PathsConfig = PathsConfig()
    contrastive: PathsConfig = PathsConfig()


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class ThawConfig:
    """When the tables adapt, and through what.

    Attributes:
        arm: Named way to train (``trainer/thaw/arms.py``).
        num_epochs: Passes over the window; ``single_epoch`` always makes one.
        state: What the tables' optimizer state becomes at the thaw.
        routes: What may flow back into the tables; arms that are named after a route or a remedy bring their own.
    """

    arm: Arm = "delayed"
    num_epochs: PositiveInt = 2
    state: StatePolicy = "reset"
    routes: RoutesConfig = RoutesConfig()


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class RemediesConfig:
    """Settings of the published remedies, each read by the arm of that name (``trainer/thaw/remedies.py``).

    Attributes:
        full_rate_count: ``frequency_lr``: impressions in the window from which on a row learns at the full rate.
        rate_power: ``frequency_lr``: a row of count c learns at (c / full_rate_count) ** rate_power of it.
        interval_decay: ``adam_ar``: a row shrinks by this share for each step since its last update, at an update.
        table_rate_scale: ``slow_tables``: the tables' step size as a share of the recipe's.
        row_dropout: ``row_dropout``: share of looked-up values that are dropped in training.
        row_decay: ``row_decay``: share by which a row shrinks at each of its updates.
        min_count: ``min_count``: impressions in the window below which a row does not adapt.
        frequent_count: ``frequency_thaw``: impressions in the window from which on a row is frequent.
        frequent_thaw_point: ``frequency_thaw``: epochs after which frequent rows adapt; the others wait for the thaw.
    """

    full_rate_count: PositiveInt = 1024
    rate_power: PositiveFloat = 1.0
    interval_decay: NonNegativeFloat = 1e-2
    table_rate_scale: Fraction = 0.03
    row_dropout: Probability = 0.5
    row_decay: Probability = 0.1
    min_count: PositiveInt = 32
    frequent_count: PositiveInt = 64
    frequent_thaw_point: NonNegativeFloat = 0.5


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class GuardConfig:
    """The self-influence canary, and what its reading may set off (``trainer/thaw/canary.py``).

    Attributes:
        num_rows: Impressions of the window that the canary watches; as many more are kept from training.
        refreeze: Whether the tables go back to the backbone's rows, and stay, once the canary crosses its threshold.
        max_self_influence: That threshold, as a share of the loss.
    """

    num_rows: PositiveInt = 1024
    refreeze: bool = False
    max_self_influence: PositiveFloat = 0.05
