"""The verbs on the recurring run of a recipe: `schedule apply`, `show`, `pause`, `delete`."""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pipelines.options import (
    Verbs,
    add_cluster_options,
    add_json_option,
    add_recipe_options,
    chosen_recipe,
    server_of,
)
from trainer.errors import InputError
from trainer.recipe import Recipe

if TYPE_CHECKING:
    from pipelines.cluster.client import Client
    from pipelines.cluster.schedules import Schedule


def add_to(verbs: Verbs) -> None:
    """Adds the verbs to the command."""
    schedule = verbs.add_parser("schedule", help="the daily retrain on a cluster, as the recipe's `schedule` says")
    verbs = schedule.add_subparsers(title="verbs", required=True, metavar="VERB")
    for name, verb, help_ in (
        ("apply", _apply, "make, change or resume it; one that is as the recipe says is left alone"),
        ("show", _show, "tell what is there, and what the recipe says otherwise"),
        ("pause", _pause, "begin no further run until the next `apply`; one at work goes on"),
        ("delete", _delete, "remove it; a run at work goes on"),
    ):
        parser = verbs.add_parser(name, help=help_)
        add_recipe_options(parser)
        add_cluster_options(parser)
        add_json_option(parser)
        parser.set_defaults(verb=_with_client(verb))


def _with_client(
    verb: "Callable[[Client, Recipe, argparse.Namespace], None]",
) -> Callable[[argparse.Namespace], None]:
    def run(arguments: argparse.Namespace) -> None:
        from pipelines.cluster.client import Client

        recipe = chosen_recipe(arguments)
        verb(Client(server_of(arguments)), recipe, arguments)

    return run


def _apply(client: "Client", recipe: Recipe, arguments: argparse.Namespace) -> None:
    from pipelines.cluster.schedules import apply

    applied = apply(client, recipe)
    content = {"verdict": applied.verdict, **_facts(applied.schedule)}
    _tell(content, [f"schedule: {applied.verdict}, {_line(applied.schedule, recipe)}"], arguments)


def _show(client: "Client", recipe: Recipe, arguments: argparse.Namespace) -> None:
    from pipelines.cluster.schedules import show

    found = show(client, recipe)
    lines = []
    if found.state != "none":
        differs = ", ".join(found.differs_in)
        says = f"says otherwise: {differs}; `schedule apply` changes it" if differs else "says so too"
        last = "none yet" if found.last_run is None else f"{found.last_run['state'].lower()}, {found.last_run['page']}"
        lines = [f"  the recipe   {says}", f"  last run     {last}"]
    _tell(_facts(found), [*lines, f"schedule: {_line(found, recipe)}"], arguments)


def _pause(client: "Client", recipe: Recipe, arguments: argparse.Namespace) -> None:
    from pipelines.cluster.schedules import name_of, pause

    name = name_of(recipe)
    if not pause(client, recipe):
        raise InputError(f"schedule {name}: there is none to pause; `thawline schedule apply` makes it")
    _tell({"verdict": "paused", "name": name}, [f"schedule: paused, {name}"], arguments)


def _delete(client: "Client", recipe: Recipe, arguments: argparse.Namespace) -> None:
    from pipelines.cluster.schedules import delete, name_of

    name, verdict = name_of(recipe), "deleted" if delete(client, recipe) else "none there"
    _tell({"verdict": verdict, "name": name}, [f"schedule: {verdict}, {name}"], arguments)


def _line(schedule: "Schedule", recipe: Recipe) -> str:
    if schedule.state == "none":
        return f"none there, {schedule.name}; `thawline schedule apply` makes it"
    until = ""
    if schedule.holds_until is not None:
        zone = recipe.schedule.time_zone
        until = f", until {schedule.holds_until}, when {zone} changes its clocks: apply it again then"
    return f"{schedule.name} is {schedule.state}: cron `{schedule.cron}` UTC{until}; {schedule.page}"


def _facts(schedule: "Schedule") -> dict[str, Any]:
    until = schedule.holds_until
    return {**asdict(schedule), "holds_until": None if until is None else until.isoformat()}


def _tell(content: dict[str, Any], lines: list[str], arguments: argparse.Namespace) -> None:
    print(json.dumps(content) if arguments.json else "\n".join(lines))
