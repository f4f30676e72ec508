"""The verb `data import`: a known data set, or logs in another shape through a mapping file, as a log."""

import argparse
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from pipelines.log_folder import make_log
from pipelines.options import Verbs, add_json_option
from trainer.errors import InputError
from trainer.storage.uris import is_gcs

if TYPE_CHECKING:  # both bring Arrow along, which the other verbs need not wait for
    from pipelines.starter import Starter
    from trainer.windows.importing.summary import ImportSummary

RECIPE = "recipe.yaml"
_MAX_SHOWN = 5


def add_to(verbs: Verbs) -> None:
    """Adds the verb to those on logs."""
    parser = verbs.add_parser(
        "import",
        help="turn a known data set, or your own logs, into a log",
        description="Turns a known data set into a log, or, with --mapping, logs in another shape (docs/import.md).",
    )
    parser.add_argument("source", nargs="?", choices=["complete-journey"], help="a known data set")
    parser.add_argument("--mapping", type=Path, metavar="FILE", help="YAML file that says what your logs mean")
    parser.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="with --mapping: files, folders or quoted patterns, local or gs://",
    )
    parser.add_argument(
        "--engagements",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="the same of engagements, where the mapping has them in files of their own",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the new log")
    add_json_option(parser)
    parser.set_defaults(verb=_import)


def _import(arguments: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if (arguments.source is None) == (arguments.mapping is None):
        raise InputError("data import: name either a known data set (complete-journey) or --mapping FILE")
    if arguments.mapping is not None:
        _import_mapped(arguments)
    elif arguments.sources or arguments.engagements or arguments.json:
        raise InputError(f"data import {arguments.source}: --from, --engagements and --json belong to --mapping")
    else:
        from trainer.windows.sources.complete_journey import import_complete_journey

        make_log(arguments.out, lambda out: import_complete_journey(str(out)))
        print(f"log: {arguments.out}")


def _import_mapped(arguments: argparse.Namespace) -> None:
    from pipelines.starter import starter_for, starter_text
    from trainer.storage.preflight import preflight
    from trainer.windows.importing.files import find_files
    from trainer.windows.importing.importing import Import
    from trainer.windows.importing.loading import load_mapping

    if not arguments.sources:
        raise InputError("data import --mapping: no files to read; name them with --from")
    mapping = load_mapping(arguments.mapping)
    for uri in filter(is_gcs, (*arguments.sources, *arguments.engagements)):
        preflight(re.split(r"[*?\[]", uri)[0], writable=False)
    files = find_files(arguments.sources, "--from")
    engagement_files = find_files(arguments.engagements, "--engagements")
    done: list[tuple[ImportSummary, Starter]] = []

    def write(out: Path) -> None:
        summary = Import(mapping, str(arguments.mapping), out).run(files, engagement_files)
        logs = mapping.logs(str(arguments.out.resolve()))
        starter = starter_for(arguments.out, logs, mapping.history.length, summary)
        (out / RECIPE).write_text(starter_text(starter.recipe))
        done.append((summary, starter))

    make_log(arguments.out, write)
    ((summary, starter),) = done
    if arguments.json:
        print(json.dumps({"log": str(arguments.out), "recipe": str(arguments.out / RECIPE), **summary.to_json()}))
        return
    for line in _told(summary, starter, arguments.out):
        print(line)
    print(f"log: {arguments.out}")


def _told(summary: "ImportSummary", starter: "Starter", out: Path) -> Iterator[str]:
    """What a person wants to know of an import, and what to type next."""
    first, last = min(summary.days), max(summary.days)
    rates = ", ".join(f"{label} {rate:.1%}" for label, rate in summary.label_rates.items())
    yield f"{len(summary.days)} days, {first} to {last} (UTC), {summary.num_rows:,} rows: {rates}"
    yield f"{summary.num_users:,} users, {summary.num_pins:,} pins"
    yield f"{summary.mean_history:.1f} pins in a history on average; {summary.empty_history_share:.1%} are empty"
    if summary.num_engagements:
        yield f"{summary.num_joined:,} of {summary.num_engagements:,} engagements found their impression"
    if summary.num_dropped:
        yield f"left out {summary.num_dropped:,} records:"
        yield from (f"  {each.num_rows:,} as {each.first}" for each in summary.dropped[:_MAX_SHOWN])
    if summary.gaps:
        shown = ", ".join(summary.gaps[:_MAX_SHOWN]) + (", ..." if len(summary.gaps) > _MAX_SHOWN else "")
        yield f"days without rows: {shown}; a retrain wants days in a row"
    recipe = quote(str(out / RECIPE))
    yield f"next: thawline data check --recipe {recipe}"
    if starter.is_enough:
        yield f"      thawline retrain --recipe {recipe} --date {starter.date}"
    else:
        yield f"      then import more days: {starter.num_days} in a row, and a retrain wants 3 or more"
