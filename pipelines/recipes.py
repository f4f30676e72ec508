"""Recipes by name: functions that say what is trained on which logs.

`thawline retrain --recipe NAME --show-recipe` prints one as YAML; a file of that shape is a recipe too.
"""

import json
from collections.abc import Callable
from pathlib import Path

import yaml

from trainer.errors import InputError
from trainer.recipe import (
    BackboneConfig,
    GroupConfig,
    GroupsConfig,
    LookupConfig,
    LossesConfig,
    ModelConfig,
    Recipe,
    RemediesConfig,
    TablesConfig,
    TrainingConfig,
    VlmConfig,
    WindowConfig,
)
from trainer.windows.sources.complete_journey import log_config
from trainer.windows.sources.synthetic import synthetic_logs


def complete_journey() -> Recipe:
    """The demo on a real log: promoted products shown to households, see `trainer.windows.sources.complete_journey`."""
    return Recipe(
        name="complete_journey",
        logs=log_config(".thawline/logs/complete_journey"),
        tables=TablesConfig(num_user_rows=8192, num_pin_rows=262_144, dim=16),
        window=WindowConfig(num_days=20),
        backbone=BackboneConfig(num_days=60),
        # 70,000 rows a window: a larger network learns them by heart in a second pass, frozen tables or not.
        model=ModelConfig(history_length=10, num_cross_layers=1, hidden_sizes=(32, 16), dropout=0.2),
        groups=GroupsConfig(tables=GroupConfig(learning_rate=0.1)),
        training=TrainingConfig(batch_rows=256),
        lookup=LookupConfig(mode="sync"),  # one rank has nothing to overlap
    )


def synthetic() -> Recipe:
    """The synthetic feed with known truth: three dependent labels, see `trainer.windows.sources.synthetic`."""
    return Recipe(
        name="synthetic",
        logs=synthetic_logs(".thawline/logs/synthetic"),
        tables=TablesConfig(num_user_rows=32768, num_pin_rows=65536, dim=16),
        window=WindowConfig(num_days=20),
        backbone=BackboneConfig(num_days=40),
        model=ModelConfig(history_length=10, num_cross_layers=1, hidden_sizes=(32, 16)),
        vlm=VlmConfig(num_layers=0),
        losses=LossesConfig(head_weights=(1.0, 0.5, 0.2)),
        remedies=RemediesConfig(full_rate_count=256, rate_power=0.5, row_decay=0.001),
        groups=GroupsConfig(
            tables=GroupConfig(learning_rate=0.2),
            network=GroupConfig(learning_rate=6e-3),
            vlm=GroupConfig(learning_rate=3e-3),
        ),
        training=TrainingConfig(batch_rows=256),
        lookup=LookupConfig(mode="sync"),  # one rank has nothing to overlap
    )


RECIPES: dict[str, Callable[[], Recipe]] = {"complete_journey": complete_journey, "synthetic": synthetic}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name, or the one that a YAML file of that path holds.

    Raises:
        InputError: There is no such recipe, or the file holds none.
    """
    if name in RECIPES:
        return RECIPES[name]()
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        raise InputError(f"recipe '{name}': unknown; choose one of {', '.join(sorted(RECIPES))} or name a YAML file")
    try:
        tree = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"recipe '{name}': cannot be read as YAML ({' '.join(str(error).split())})") from None
    if not isinstance(tree, dict):
        raise InputError(f"recipe '{name}': holds no fields; start from what --show-recipe prints")
    return Recipe.from_json(json.dumps(tree))


def show_recipe(recipe: Recipe) -> str:
    """The recipe as YAML, which `find_recipe` reads back."""
    return yaml.safe_dump(json.loads(recipe.to_json()), sort_keys=False)
