"""Options that several verbs share, and what they mean."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from pipelines.recipes import RECIPES, find_recipe
from trainer.errors import InputError
from trainer.recipe import Recipe

Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What `add_subparsers` returns; argparse gives it no public name."""


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """Adds ``--recipe`` and ``--set``."""
    parser.add_argument(
        "--recipe",
        default="complete_journey",
        metavar="NAME",
        help=f"one of {', '.join(sorted(RECIPES))}, or a YAML file that --show-recipe printed (default: %(default)s)",
    )
    add_set_option(parser, "a field of the recipe, such as window.num_days=10; repeatable")


def add_set_option(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Adds ``--set``."""
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help=help_text)


def add_date_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--date``."""
    parser.add_argument(
        "--date",
        default=datetime.now(UTC).date().isoformat(),
        metavar="YYYY-MM-DD",
        help="UTC day of the retrain; the day before it is held out (default: today)",
    )


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Adds ``--runner``, ``--store`` and ``--tracking-uri``."""
    parser.add_argument(
        "--runner",
        choices=["local", "docker"],
        default="local",
        help="what steps run in: processes or containers of this machine (default: %(default)s)",
    )
    parser.add_argument("--store", default=".thawline", metavar="DIR", help="what we keep (default: %(default)s)")
    parser.add_argument(
        "--tracking-uri", metavar="URI", help="MLflow's runs and models (default: a database in the store)"
    )


def tracking_uri_of(arguments: argparse.Namespace) -> str:
    """Where MLflow is: what ``--tracking-uri`` says, or a database in the store."""
    return arguments.tracking_uri or f"sqlite:///{Path(arguments.store).resolve()}/mlflow.db"


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON document for scripts instead of text")


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """``["a.b=1"]`` as ``{"a.b": "1"}``.

    Raises:
        InputError: One lacks its ``=``.
    """
    for setting in settings:
        if "=" not in setting:
            raise InputError(f"--set {setting}: has no value; write --set KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in (setting.partition("=") for setting in settings)}


def chosen_recipe(arguments: argparse.Namespace) -> Recipe:
    """The recipe that ``--recipe`` and ``--set`` name.

    Raises:
        InputError: There is no such recipe, or a setting does not fit it.
    """
    return find_recipe(arguments.recipe).override(parse_settings(arguments.settings))
