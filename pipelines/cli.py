"""The `thawline` command.

Exit codes: 0 done, 1 something failed, 2 the input is at fault; then the last line on stderr says what to mend.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from pipelines import backfill_verb, compare_verb, data_verbs, plan_verb, run_verbs, schedule_verb
from pipelines.errors import RunFailedError
from pipelines.options import Verbs
from trainer.errors import InputError
from trainer.storage.errors import StorageError

Verb = Callable[[argparse.Namespace], None]


class _Parser(argparse.ArgumentParser):
    """Tells a mistyped command in one line, as every other mistake."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code."""
    try:
        parsed = _build_parser().parse_args(arguments)
        verb: Verb = parsed.verb
        verb(parsed)
    except InputError as error:
        print(f"thawline: error: {error}", file=sys.stderr)
        return 2
    except (RunFailedError, StorageError) as error:
        print(f"thawline: failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("thawline: interrupted", file=sys.stderr)
        return 130
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="thawline", description="Daily retrains of a feed ranker with multi-epoch-safe ID tables."
    )
    verbs: Verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    run_verbs.add_to(verbs)
    backfill_verb.add_to(verbs)
    schedule_verb.add_to(verbs)
    compare_verb.add_to(verbs)
    plan_verb.add_to(verbs)
    data_verbs.add_to(verbs)
    return parser


if __name__ == "__main__":
    sys.exit(main())
