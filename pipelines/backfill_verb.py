"""The verb `backfill`: the daily retrain for each day of a span that has none yet, the oldest first."""

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from components.run import Run, parse_date
from pipelines.execution import execute
from pipelines.options import (
    Verbs,
    add_again_option,
    add_json_option,
    add_recipe_options,
    add_store_options,
    chosen_recipe,
    placed,
)
from trainer.errors import InputError


def add_to(verbs: Verbs) -> None:
    """Adds the verb to the command."""
    backfill = verbs.add_parser(
        "backfill", help="the daily DAG for each date of a span that has no result yet, the oldest first"
    )
    backfill.add_argument("--from", dest="first", required=True, metavar="YYYY-MM-DD", help="first UTC day")
    backfill.add_argument("--to", dest="last", required=True, metavar="YYYY-MM-DD", help="last UTC day")
    add_recipe_options(backfill)
    add_store_options(backfill)
    add_again_option(backfill)
    add_json_option(backfill)
    backfill.set_defaults(verb=_backfill)


def _backfill(arguments: argparse.Namespace) -> None:
    recipe, store = placed(chosen_recipe(arguments), arguments)
    # One after another: each is judged against the champion that the days before it left.
    days = [_fill(Run(recipe=recipe, date=day, store=store), arguments) for day in _span(arguments)]
    if arguments.json:
        print(json.dumps(days))
        return
    num_skipped = sum(day["is_skipped"] for day in days)
    told = f", {num_skipped} of them there already" if num_skipped else ""
    print(f"backfilled: {days[0]['date']} to {days[-1]['date']}, {len(days)} days{told}; {store}/runs")


def _span(arguments: argparse.Namespace) -> Iterator[date]:
    first, last = parse_date(arguments.first), parse_date(arguments.last)
    if last < first:
        raise InputError(f"--to {last}: is before --from {first}; name a day that is not")
    return (first + timedelta(days=number) for number in range((last - first).days + 1))


def _fill(run: Run, arguments: argparse.Namespace) -> dict[str, Any]:
    """Retrains for one day, unless that is done; says so on stderr and returns what is known of it."""
    there, submission = run.summary_path.is_file() and not arguments.again, None
    if not there or arguments.runner == "cluster":
        print(f"{run.date}:", file=sys.stderr, flush=True)
        submission = execute("retrain", run, arguments, folder=run.folder)
        there = submission is not None and submission.state == "SUCCEEDED"
    facts = {"date": run.date.isoformat(), "is_skipped": there, "summary": str(run.summary_path)}
    if submission is not None:
        facts |= {"run": submission.run_id, "page": submission.page}
    if run.summary_path.is_file():
        summary = json.loads(run.summary_path.read_text())
        facts |= {name: summary[name] for name in ("version", "decision")}
    if not arguments.json:
        print(_line(facts), flush=True)
    return facts


def _line(facts: dict[str, Any]) -> str:
    result = f"version {facts['version']}: {facts['decision']}" if "decision" in facts else facts.get("page", "")
    return f"{facts['date']}  {result}{'  (there already)' if facts['is_skipped'] else ''}"
