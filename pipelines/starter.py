"""The recipe that an imported log starts with: sizes and spans that fit it, everything else as in the demo."""

import re
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from pipelines.recipes import show_recipe
from trainer.recipe import (
    BackboneConfig,
    GroupConfig,
    GroupsConfig,
    LogsConfig,
    LookupConfig,
    LossesConfig,
    ModelConfig,
    Recipe,
    TablesConfig,
    TrainingConfig,
    WindowConfig,
)
from trainer.windows.importing.summary import ImportSummary

MIN_DAYS = 3
"""One to pretrain on, one to train on, one held out."""

_MAX_HISTORY = 20
_ROOM = 1.3  # rows of a table for each id: new ones come every day


@dataclass(frozen=True, kw_only=True)
class Starter:
    """A recipe for a log, and the retrain that it allows.

    Attributes:
        recipe: The recipe.
        num_days: Days in a row, up to the log's last.
        date: The day to retrain on; the log's last day is then held out.
    """

    recipe: Recipe
    num_days: int
    date: date

    @property
    def is_enough(self) -> bool:
        """Whether there are days enough to retrain."""
        return self.num_days >= MIN_DAYS


def starter_for(out: Path, logs: LogsConfig, history_length: int, summary: ImportSummary) -> Starter:
    """The recipe for a log that was imported.

    Args:
        out: The log's folder, which gives the recipe its name.
        logs: The log's shape.
        history_length: Longest history that it holds.
        summary: What it holds.
    """
    num_days = _days_in_a_row(summary)
    num_train = max(1, min(20, (num_days - 1) // 2))
    num_earlier = max(1, min(60, num_days - 1 - num_train))
    recipe = Recipe(
        name=re.sub(r"[^a-z0-9]+", "_", out.name.lower()).strip("_") or "log",
        logs=logs,
        tables=TablesConfig(num_user_rows=_rows_for(summary.num_users), num_pin_rows=_rows_for(summary.num_pins)),
        window=WindowConfig(num_days=num_train),
        backbone=BackboneConfig(num_days=num_earlier),
        model=ModelConfig(history_length=min(history_length, _MAX_HISTORY), num_cross_layers=1, hidden_sizes=(32, 16)),
        losses=LossesConfig(head_weights=(1.0,) + (0.5,) * (len(logs.labels) - 1)),
        groups=GroupsConfig(tables=GroupConfig(learning_rate=0.1)),
        training=TrainingConfig(batch_rows=_batch_rows(summary.num_rows * num_train // len(summary.days))),
        lookup=LookupConfig(mode="sync"),  # one rank has nothing to overlap
    )
    return Starter(recipe=recipe, num_days=num_days, date=_last_day(summary) + timedelta(days=1))


def starter_text(recipe: Recipe) -> str:
    """The recipe as a YAML file."""
    return f"# Made by `thawline data import` to begin with; every field may be changed.\n{show_recipe(recipe)}"


def _days_in_a_row(summary: ImportSummary) -> int:
    days = {date.fromisoformat(day) for day in summary.days}
    last = _last_day(summary)
    return next(number for number in range(1, len(days) + 1) if last - timedelta(days=number) not in days)


def _last_day(summary: ImportSummary) -> date:
    return max(date.fromisoformat(day) for day in summary.days)


def _batch_rows(num_rows: int) -> int:
    """256, or less for a window that would be over in some tens of steps."""
    return max(32, min(256, 1 << (num_rows // 100).bit_length()))


def _rows_for(num_ids: int) -> int:
    return max(1024, 1 << (int(num_ids * _ROOM) - 1).bit_length())
