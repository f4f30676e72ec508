"""What every DAG ends with, however it ends: a report."""

from typing import Any

from kfp import dsl

from components.report_run.component import report_run
from pipelines.places import Place


def reported(place: Place, *, recipe: str, date: str, store: str) -> Any:
    """Surrounds a whole DAG; what ends within, well or not, is reported.

    Args:
        place: Where the report is made.
        recipe: The recipe as JSON.
        date: UTC day of the retrain, or a time on it.
        store: Folder that everything we write is kept in.
    """
    report = report_run(recipe=recipe, date=date, store=store, created_at=place.run_created_at)
    return dsl.ExitHandler(place(report, "lookup"), name="run")
