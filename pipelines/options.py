"""Options that several verbs share, and what they mean."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from components.run import records_folder
from pipelines.recipes import RECIPES, find_recipe
from trainer.errors import InputError
from trainer.recipe import Recipe

if TYPE_CHECKING:  # the API's hundreds of modules concern only who calls it
    from pipelines.cluster.client import Server

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
        choices=["local", "docker", "cluster"],
        default="local",
        help="what steps run in: processes or containers of this machine, or a cluster's pods (default: %(default)s)",
    )
    parser.add_argument(
        "--store",
        metavar="DIR",
        help="what we keep, local or, for days and windows, gs:// (default: .thawline; on a cluster, cluster.store)",
    )
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow's runs and models (default: a database in the store; on a cluster, cluster.tracking_uri)",
    )
    add_cluster_options(parser)


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Adds where a cluster is, and who asks."""
    group = parser.add_argument_group("on a cluster")
    group.add_argument("--endpoint", metavar="URL", help="Kubeflow Pipelines, such as http://localhost:8080")
    group.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="holds a bearer token; read anew for each request (default: a pod's own, where there is one)",
    )
    group.add_argument("--ca-file", type=Path, metavar="FILE", help="certificates that the endpoint is verified by")
    group.add_argument("--namespace", metavar="NAME", help="the profile to work in, where there are several users")


def add_again_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--again``."""
    parser.add_argument(
        "--again", action="store_true", help="even where there is a result; a local retrain always looks"
    )


def server_of(arguments: argparse.Namespace) -> "Server":
    """The cluster that the arguments name.

    Raises:
        InputError: They name none, or a file that is not there.
    """
    from pipelines.cluster.client import Server

    if arguments.endpoint is None:
        raise InputError("--endpoint: not given; name Kubeflow Pipelines' URL, such as http://localhost:8080")
    return Server(
        endpoint=arguments.endpoint,
        token_file=arguments.token_file,
        ca_file=arguments.ca_file,
        namespace=arguments.namespace,
    )


def placed(recipe: Recipe, arguments: argparse.Namespace) -> tuple[Recipe, str]:
    """The recipe, with what ``--store`` and ``--tracking-uri`` say of a cluster, and the store of a run by it."""
    if arguments.runner != "cluster":
        return recipe, arguments.store or ".thawline"
    said = {"cluster.store": arguments.store, "cluster.tracking_uri": arguments.tracking_uri}
    recipe = recipe.override({name: value for name, value in said.items() if value is not None})
    return recipe, recipe.cluster.store


def tracking_uri_of(arguments: argparse.Namespace, store: str) -> str:
    """Where MLflow is on this machine: what ``--tracking-uri`` says, or a database in the store."""
    return arguments.tracking_uri or f"sqlite:///{records_folder(store).resolve()}/mlflow.db"


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
