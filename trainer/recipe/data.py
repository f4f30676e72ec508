"""Sections on data: the logs, the window and the days of the backbone."""

from pydantic.dataclasses import dataclass

from trainer.recipe.types import STRICT_KEYS, PositiveInt


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
    """The days that one retrain trains on, before its one held-out day.

    Attributes:
        num_days: Training days.
        shuffle_seed: Seed of the order of slates within a prepared day.
    """

    num_days: PositiveInt = 20
    shuffle_seed: int = 17


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class BackboneConfig:
    """The contrastive pretraining on the days before the window.

    Attributes:
        num_days: Days to pretrain on; they end the day before the window begins.
        num_epochs: Passes over them.
    """

    num_days: PositiveInt = 60
    num_epochs: PositiveInt = 1
