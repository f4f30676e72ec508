"""The verb `compare`: arms side by side on the same windows."""

import argparse
import json
import sys
from dataclasses import replace

from components.comparison import BASELINE, Comparison, plan_cases
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
from pipelines.report import comparison_table
from trainer.errors import InputError

_ARMS = "delayed,cotrain,frozen"
_NUM_SEEDS = 3


def add_to(verbs: Verbs) -> None:
    """Adds the verb to the command."""
    compare = verbs.add_parser("compare", help=f"arms side by side on the same windows, judged against {BASELINE}")
    compare.add_argument(
        "--arms",
        default=_ARMS,
        metavar="A,B,...",
        help="arms to train, each NAME[*PASSES][@THAW][+guard], such as delayed@1.5 or cotrain+guard; "
        f"{BASELINE} is always among them (default: %(default)s)",
    )
    compare.add_argument(
        "--seeds",
        default=str(_NUM_SEEDS),
        metavar="N",
        help="seeds an arm, counted from the recipe's training.seed (default: %(default)s)",
    )
    compare.add_argument(
        "--window-days", metavar="N,M,...", help="training days of each window (default: the recipe's window.num_days)"
    )
    add_recipe_options(compare)
    add_date_option(compare)
    add_store_options(compare)
    add_again_option(compare)
    add_json_option(compare)
    compare.set_defaults(verb=_compare)


def plan(arguments: argparse.Namespace) -> Comparison:
    """The comparison that the arguments ask for.

    Raises:
        InputError: An argument is no good.
    """
    recipe, store = placed(chosen_recipe(arguments), arguments)
    lengths = [recipe.window.num_days]
    if arguments.window_days is not None:
        lengths = [_number("--window-days", text) for text in _words("--window-days", arguments.window_days)]
    seeds = _number("--seeds", arguments.seeds)
    cases = plan_cases(recipe, _words("--arms", arguments.arms), seeds, lengths)
    longest = replace(recipe, window=replace(recipe.window, num_days=max(lengths)))
    return Comparison(run=Run(recipe=longest, date=parse_date(arguments.date), store=store), cases=cases)


def _compare(arguments: argparse.Namespace) -> None:
    comparison = plan(arguments)
    print(_announcement(comparison), file=sys.stderr, flush=True)
    submission = execute(
        "compare",
        comparison.run,
        arguments,
        folder=comparison.folder,
        totals={"train_arm": len(comparison.cases)},
        cases=comparison.to_json(),
    )
    report = comparison.report_folder / "comparison.json"
    if submission is not None and not report.is_file():
        return tell_of(submission, "report", report, arguments.json)
    content = json.loads(report.read_text())
    page = comparison.report_folder / "report.html"
    if arguments.json:
        print(json.dumps({**content, "report": str(page)}))
    else:
        print(f"\n{comparison_table(content)}\n\nreport: {page}")


def _announcement(comparison: Comparison) -> str:
    def counted(things: tuple[object, ...], name: str) -> str:
        return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"

    return (
        f"{counted(comparison.cases, 'case')}: {counted(comparison.arms, 'arm')}, "
        f"{counted(comparison.seeds, 'seed')}, {counted(comparison.window_lengths, 'window length')}"
    )


def _words(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{option} '{text}': an entry is empty; separate entries by single commas")
    return words


def _number(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{option} '{text}': no whole number; write it in digits") from None
