"""Which days a run needs, and whether the log has them."""

from components.run import Run
from trainer.errors import InputError
from trainer.windows.manifest import backbone_days, window_days
from trainer.windows.storage import list_days


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
