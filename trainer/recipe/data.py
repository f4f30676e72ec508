"""Sections on data: the logs, the window and the days of the backbone."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from trainer.recipe.types import STRICT_KEYS, PositiveInt, Probability


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class LogsConfig:
    """Where the impressions lie, and their shape within the log contract (``trainer/windows/contract.py``).

    Attributes:
        uri: Folder that holds ``dt=YYYY-MM-DD/*.parquet``.
        labels: Boolean label columns, one head each; the first is always ``save``.
        num_user_features: Length of ``user_features``.
        num_pin_features: Length of ``pin_features``.
    """

    uri: str
    labels: tuple[str, ...] = ("save",)
    num_user_features: PositiveInt
    num_pin_features: PositiveInt

    def __post_init__(self) -> None:
        if not self.labels or self.labels[0] != "save":
            raise ValueError("labels must begin with 'save'")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ from each other")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class WindowConfig:
    """The days that one retrain trains on, before its one held-out day, and how each is prepared.

    Attributes:
        num_days: Training days.
        shuffle_seed: Seed of the order of slates within a prepared day.
        num_shards: Parts that a day is prepared in, each on a host of its own; more only where one is too slow.
        late_hours: How long after a day's end its rows may still come, in the next day's folder.
        negative_rate: Share of the rows without a positive label that are trained on, weighted up to all of them; a
            held-out day always keeps all.
        max_quarantined_share: Share of a day's rows that may break the log contract and be set aside; with more of
            them the day is refused.
    """

    num_days: PositiveInt = 20
    shuffle_seed: int = 17
    num_shards: PositiveInt = 1
    late_hours: Annotated[int, Field(ge=0, le=24)] = 0
    negative_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_quarantined_share: Probability = 0.001


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class BackboneConfig:
    """The contrastive pretraining on the days before the window.

    Attributes:
        num_days: Days to pretrain on; they end the day before the window begins.
        num_epochs: Passes over them.
    """

    num_days: PositiveInt = 60
    num_epochs: PositiveInt = 1
