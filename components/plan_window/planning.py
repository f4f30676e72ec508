"""Which days a run needs, and whether the log has them."""

import hashlib
import json
from datetime import date

from components.run import Run
from trainer.errors import InputError
from trainer.windows.logs import list_days, stat_files
from trainer.windows.manifest import backbone_days, window_days


def plan_with_files(run: Run, span: str) -> list[dict[str, str]]:
    """The days of a span, oldest first, each ``{"day": "YYYY-MM-DD", "files": ...}``.

    ``files`` stands for what the log holds for that day: names, sizes and versions of its files. Nothing is read: it
    says whether a day is the one that was prepared before, not what is in it.

    Args:
        run: Recipe and date.
        span: ``window`` or ``backbone``.

    Raises:
        InputError: The log lacks one of the days.
    """
    return [{"day": day, "files": _files(run.recipe.logs.uri, date.fromisoformat(day))} for day in plan(run, span)]


def _files(logs_uri: str, day: date) -> str:
    parts = [(file.name, file.num_bytes, file.version) for file in stat_files(logs_uri, day)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def plan(run: Run, span: str) -> list[str]:
    """The days of a span, ``YYYY-MM-DD``, oldest first.

    Args:
        run: Recipe and date.
        span: ``window`` or ``backbone``.

    Raises:
        InputError: The log lacks one of the days.
    """
    num_days = run.recipe.window.num_days
    if span == "window":
        days = window_days(run.date, num_days)
    else:
        days = backbone_days(run.date, num_days, run.recipe.backbone.num_days)
    there = list_days(run.recipe.logs.uri)
    missing = sorted(set(days) - set(there))
    if missing:
        holds = f"it holds {there[0]} to {there[-1]}" if there else "it holds no day at all"
        raise InputError(
            f"{run.recipe.logs.uri}: no logs for {missing[0]}, a {span} day of --date {run.date}; "
            f"{holds}, so add that day, choose another --date or set {span}.num_days"
        )
    return [day.isoformat() for day in days]
