"""The verbs that run a DAG or compile it: `retrain`, `pretrain`, `compile`."""

import argparse
import json
from pathlib import Path

from components.run import Run, parse_date
from pipelines.execution import execute, tell_of
from pipelines.options import (
    Verbs,
    add_again_option,
    add_date_option,
    add_json_option,
    add_recipe_options,
    add_store_options,
    chosen_recipe,
    placed,
)
from pipelines.recipes import show_recipe
from pipelines.report import summary_table


def add_to(verbs: Verbs) -> None:
    """Adds the verbs to the command."""
    retrain = verbs.add_parser("retrain", help="the daily DAG for one date: window, training, comparison, decision")
    _add_run_options(retrain)
    retrain.set_defaults(verb=_retrain)
    pretrain = verbs.add_parser("pretrain", help="make or refresh the backbone that a date's retrain starts from")
    _add_run_options(pretrain)
    pretrain.set_defaults(verb=_pretrain)
    compile_ = verbs.add_parser("compile", help="write every DAG as KFP IR YAML, with the pods that a recipe asks for")
    compile_.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for the YAML files")
    add_recipe_options(compile_)
    add_json_option(compile_)
    compile_.set_defaults(verb=_compile)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    add_recipe_options(parser)
    add_date_option(parser)
    parser.add_argument("--window-days", metavar="N", help="training days, short for --set window.num_days=N")
    add_store_options(parser)
    add_again_option(parser)
    parser.add_argument("--show-recipe", action="store_true", help="print the recipe as it would run, and stop")
    add_json_option(parser)


def _retrain(arguments: argparse.Namespace) -> None:
    run = _run(arguments)
    if arguments.show_recipe:
        return _show(run, arguments.json)
    submission = execute("retrain", run, arguments, folder=run.folder)
    if submission is not None and not run.summary_path.is_file():
        return tell_of(submission, "summary", run.summary_path, arguments.json)
    summary = json.loads(run.summary_path.read_text())
    if arguments.json:
        print(json.dumps(summary))
    else:
        print(f"\n{summary_table(summary)}\n\nsummary: {run.summary_path}")


def _pretrain(arguments: argparse.Namespace) -> None:
    run = _run(arguments)
    if arguments.show_recipe:
        return _show(run, arguments.json)
    submission = execute("pretrain", run, arguments, folder=run.folder)
    if submission is not None and not run.backbone_path.is_file():
        return tell_of(submission, "backbone", run.backbone_path, arguments.json)
    record = json.loads(run.backbone_path.read_text())
    print(json.dumps(record) if arguments.json else f"backbone: models:/{record['model']}/{record['version']}")


def _compile(arguments: argparse.Namespace) -> None:
    from pipelines.catalog import compile_all

    paths = [str(path) for path in compile_all(arguments.out, chosen_recipe(arguments))]
    print(json.dumps(paths) if arguments.json else f"compiled: {' '.join(paths)}")


def _run(arguments: argparse.Namespace) -> Run:
    if arguments.window_days is not None:
        arguments.settings.append(f"window.num_days={arguments.window_days}")
    recipe, store = placed(chosen_recipe(arguments), arguments)
    return Run(recipe=recipe, date=parse_date(arguments.date), store=store)


def _show(run: Run, as_json: bool) -> None:
    print(run.recipe.to_json() if as_json else show_recipe(run.recipe), end="\n" if as_json else "")
