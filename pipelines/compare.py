"""The DAG that trains arms side by side on the same windows and judges them."""

from typing import Any

from kfp import dsl

from components.assemble_window.component import assemble_window
from components.find_backbone.component import find_backbone
from components.keep_backbone.component import keep_backbone
from components.open_comparison.component import open_comparison
from components.plan_window.component import plan_window
from components.prepare_day.component import prepare_day
from components.report_comparison.component import report_comparison
from components.train_arm.component import train_arm
from pipelines.pretrain import pretrain

MAX_CASES_AT_ONCE = 2
"""Trainings side by side: as many as a laptop bears."""


# A DAG of its own: in kfp's local runner (2.17) the body of a loop sees the loop's item in place of any other step's
# output, and only what comes in from outside the DAG as it is.
@dsl.pipeline(name="thawline-train-and-report", description="Trains the cases of a comparison and reports on them.")
def train_and_report(
    recipe: str,
    date: str,
    store: str,
    window: str,
    backbone: str,
    tracking_uri: str,
    parent: str,
    cases: list[dict[str, Any]],
) -> None:
    """The fan of cases.

    Args:
        recipe: The recipe as JSON, of the longest window.
        date: UTC day on which it runs, ``YYYY-MM-DD``; the day before is held out.
        store: Folder that everything we write is kept in.
        window: Path of the longest window's manifest.
        backbone: Version of the backbone that all cases start from.
        tracking_uri: Where MLflow keeps runs and models.
        parent: ID of the comparison's MLflow run.
        cases: What is trained: arm, window_days and seed of each.
    """
    run = {
        "recipe": recipe,
        "date": date,
        "store": store,
        "window": window,
        "backbone": backbone,
        "tracking_uri": tracking_uri,
        "parent": parent,
    }
    with dsl.ParallelFor(cases, name="cases", parallelism=MAX_CASES_AT_ONCE) as case:
        trained = train_arm(**run, case=case).set_caching_options(False)
    reported = report_comparison(**run, cases=cases, results=dsl.Collected(trained.output))
    reported.set_caching_options(False)


@dsl.pipeline(name="thawline-compare", description="Trains arms on the same windows and judges them side by side.")
def compare(recipe: str, date: str, store: str, tracking_uri: str, cases: list[dict[str, Any]]) -> None:
    """One comparison. All cases share the held-out day and a backbone that ends before the longest window.

    Args:
        recipe: The recipe as JSON, of the longest window.
        date: UTC day on which it runs, ``YYYY-MM-DD``; the day before is held out.
        store: Folder that everything we write is kept in.
        tracking_uri: Where MLflow keeps runs and models.
        cases: What is trained: arm, window_days and seed of each.
    """
    run = {"recipe": recipe, "date": date, "store": store}
    days = plan_window(**run, span="window")
    with dsl.ParallelFor(days.output, name="window-days") as day:
        prepared = prepare_day(**run, day=day)
    window = assemble_window(**run, partitions=dsl.Collected(prepared.output), span="window").output

    # What is already there is looked up anew each time: a cached answer would be a stale one.
    found = find_backbone(**run, tracking_uri=tracking_uri).set_caching_options(False)
    with dsl.If(found.output == "", name="no-backbone"):
        made = pretrain(**run, tracking_uri=tracking_uri)
    with dsl.Else(name="has-backbone"):
        kept = keep_backbone(version=found.output)
    start = {**run, "window": window, "tracking_uri": tracking_uri, "backbone": dsl.OneOf(made.output, kept.output)}

    opened = open_comparison(**start, cases=cases).set_caching_options(False)
    train_and_report(**start, parent=opened.output, cases=cases)
