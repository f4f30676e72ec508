"""The verb `data gc`: what a store holds that nothing names any more."""

import argparse
import json
from pathlib import Path

from pipelines.options import Verbs, add_json_option, tracking_uri_of
from trainer.errors import InputError

_GRACE_DAYS = 7.0
_DAY_S = 86_400.0
_MIB = 1024**2


def add_to(verbs: Verbs) -> None:
    """Adds the verb to those on data."""
    gc = verbs.add_parser("gc", help="list, and with --delete remove, days and windows of a store that nothing names")
    gc.add_argument("--store", default=".thawline", metavar="DIR", help="local or gs:// (default: %(default)s)")
    gc.add_argument(
        "--tracking-uri", metavar="URI", help="MLflow, whose runs and models name windows (default: as for retrain)"
    )
    gc.add_argument("--delete", action="store_true", help="remove it; without this nothing is touched")
    gc.add_argument(
        "--grace-days",
        type=float,
        default=_GRACE_DAYS,
        metavar="N",
        help="what is younger stays: a run may be about to name it (default: %(default)s)",
    )
    add_json_option(gc)
    gc.set_defaults(verb=_gc)


def _gc(arguments: argparse.Namespace) -> None:
    from trainer.registry.windows import named_windows
    from trainer.storage.preflight import preflight
    from trainer.windows.gc import find_garbage, remove_garbage

    if not arguments.grace_days >= 0:
        raise InputError(f"--grace-days {arguments.grace_days}: cannot be negative; write a number of days")
    preflight(arguments.store, writable=False)
    tracking_uri, grace_s = tracking_uri_of(arguments, arguments.store), arguments.grace_days * _DAY_S
    _require_mlflow(tracking_uri)
    named = named_windows(tracking_uri)
    garbage = find_garbage(arguments.store, named, grace_s=grace_s)
    if arguments.delete:
        garbage = remove_garbage(arguments.store, garbage, named, grace_s=grace_s)
    num_bytes = sum(part.num_bytes for part in garbage)
    if arguments.json:
        parts = [{"uri": part.uri, "reason": part.reason, "num_bytes": part.num_bytes} for part in garbage]
        content = {"store": arguments.store, "garbage": parts, "num_bytes": num_bytes, "removed": arguments.delete}
        return print(json.dumps(content))
    for part in garbage:
        print(f"{part.num_bytes / _MIB:>10,.2f} MiB  {part.uri}: {part.reason}")
    done = "removed" if arguments.delete else "would remove, with --delete"
    print(f"{done}: {len(garbage)} of {arguments.store}, {num_bytes / _MIB:,.2f} MiB")


def _require_mlflow(tracking_uri: str) -> None:
    # A database that is not there would be made, and name nothing: then all would seem to be garbage.
    _, is_database, path = tracking_uri.partition("sqlite:///")
    if is_database and not Path(path).is_file():
        raise InputError(f"{tracking_uri}: no MLflow here to say what models name; name it with --tracking-uri")
