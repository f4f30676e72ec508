"""Which days a run needs, and whether the log has them."""

import hashlib
import json
from datetime import date

from components.run import Run
from trainer.errors import InputError
from trainer.windows.logs import list_days
from trainer.windows.manifest import backbone_days, window_days
from trainer.windows.preparing.inputs import list_day

HELDOUT = "heldout"
TRAINING = "training"


def plan_with_files(run: Run, span: str) -> list[dict[str, str]]:
    """What is to be prepared for the days of a span, oldest first: each day, or each of its shards.

    Args:
        run: Recipe and date.
        span: ``window`` or ``backbone``.

    Returns:
        ``day``, ``YYYY-MM-DD``; ``shard``, its number from 0; ``role``, ``training`` or ``heldout``; and ``files``,
        which stands for what the log holds for that day: names, sizes and versions of its files. Nothing is read: it
        says whether a day is the one that was prepared before, not what is in it.

    Raises:
        InputError: The log lacks one of the days.
    """
    days = plan(run, span)
    return [
        {"day": day, "shard": str(shard), "role": role, "files": files}
        for day in days
        for role in [HELDOUT if span == "window" and day == days[-1] else TRAINING]
        for files in [_files(run, date.fromisoformat(day))]
        for shard in range(run.recipe.window.num_shards)
    ]


def _files(run: Run, day: date) -> str:
    listing = list_day(run.recipe.logs.uri, day, run.recipe.window.late_hours)
    return hashlib.sha256(json.dumps(listing.to_json()).encode()).hexdigest()[:16]


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
