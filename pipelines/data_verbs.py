"""The verbs on logs: `data check`, `data import`, `data synthesize`."""

import argparse
import json
import logging
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from components.run import parse_date
from pipelines import gc_verb, import_verb
from pipelines.log_folder import make_log
from pipelines.options import Verbs, add_json_option, add_recipe_options, add_set_option, chosen_recipe, parse_settings
from trainer.errors import InputError


def add_to(verbs: Verbs) -> None:
    """Adds the verbs to the command."""
    data = verbs.add_parser("data", help="logs: hold them against the contract, bring them into it, make them up")
    verbs = data.add_subparsers(title="verbs", required=True, metavar="VERB")

    gc_verb.add_to(verbs)
    check = verbs.add_parser("check", help="hold a recipe's log against the contract")
    add_recipe_options(check)
    check.add_argument("--from", dest="first", metavar="YYYY-MM-DD", help="first day (default: the log's oldest)")
    check.add_argument("--to", dest="last", metavar="YYYY-MM-DD", help="last day (default: the log's newest)")
    add_json_option(check)
    check.set_defaults(verb=_check)

    import_verb.add_to(verbs)
    synthesize = verbs.add_parser("synthesize", help="draw a feed from a known model")
    add_set_option(synthesize, "a field of the synthetic feed, such as num_days=30; repeatable")
    synthesize.set_defaults(verb=_synthesize)
    synthesize.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the new log")


def _check(arguments: argparse.Namespace) -> None:
    from trainer.storage.preflight import preflight
    from trainer.windows.check import check_logs

    recipe = chosen_recipe(arguments)
    preflight(recipe.logs.uri, writable=False)
    report = check_logs(recipe.logs, _day(arguments.first), _day(arguments.last), recipe.window.late_hours)
    if arguments.json:
        print(json.dumps(report.to_json()))
    else:
        for day in report.days:
            rates = ", ".join(f"{label} {rate:.1%}" for label, rate in day.label_rates.items())
            print(f"{day.day}  {day.num_rows:>10,} rows  {day.num_slates:>9,} slates  {rates}")
        for problem in report.problems:
            print(problem.line)
    if not report.is_sound:
        raise InputError(f"{report.problems[0].line} (problem 1 of {report.num_problems})")
    if not arguments.json:
        print(f"sound: {report.uri}, {len(report.days)} days")


def _synthesize(arguments: argparse.Namespace) -> None:
    from trainer.windows.sources.synthetic import SyntheticConfig, synthesize

    config = SyntheticConfig(**_typed_fields(SyntheticConfig, parse_settings(arguments.settings)))
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    make_log(arguments.out, lambda out: synthesize(config, str(out)))
    print(f"log: {arguments.out}")


def _typed_fields(config: Any, settings: Mapping[str, str]) -> dict[str, Any]:
    """The settings as values of the types that a dataclass gives its fields."""
    types = get_type_hints(config)
    unknown = sorted(set(settings) - set(types))
    if unknown:
        raise InputError(f"--set {unknown[0]}: no such field; choose one of {', '.join(types)}")
    values = {}
    for name, text in settings.items():
        try:
            values[name] = TypeAdapter(types[name]).validate_python(text)
        except ValidationError as error:
            raise InputError(f"--set {name}={text}: {error.errors()[0]['msg']}; mend that value") from None
    return values


def _day(text: str | None) -> date | None:
    return None if text is None else parse_date(text)
