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
from pipelines.ends import reported
from pipelines.places import Place
from pipelines.pretrain import backbone as backbone_of

MAX_CASES_AT_ONCE = 2
"""Trainings side by side: as many as a laptop bears."""


def compare(place: Place) -> Any:
    """The DAG of one comparison.

    Args:
        place: Where its steps execute.
    """
    judge_arms = window_to_report(place)

    @dsl.pipeline(name="thawline-compare", description="Trains arms on the same windows and judges them side by side.")
    def compare(recipe: str, date: str, store: str, tracking_uri: str, cases: list[dict[str, Any]]) -> None:
        """All cases share the held-out day and a backbone that ends before the longest window.

        Args:
            recipe: The recipe as JSON, of the longest window.
            date: UTC day on which it runs, ``YYYY-MM-DD``; the day before is held out.
            store: Folder that everything we write is kept in.
            tracking_uri: Where MLflow keeps runs and models.
            cases: What is trained: arm, window_days and seed of each.
        """
        with reported(place, recipe=recipe, date=date, store=store):
            judge_arms(recipe=recipe, date=date, store=store, tracking_uri=tracking_uri, cases=cases)

    return compare


def window_to_report(place: Place) -> Any:
    """What it does.

    Args:
        place: Where its steps execute.
    """
    make_backbone, train_cases = backbone_of(place), train_and_report(place)

    @dsl.pipeline(name="thawline-window-to-report", description="From the days of a window to arms side by side.")
    def window_to_report(recipe: str, date: str, store: str, tracking_uri: str, cases: list[dict[str, Any]]) -> None:
        run = {"recipe": recipe, "date": date, "store": store}
        days = place(plan_window(**run, span="window"), "lookup")
        with dsl.ParallelFor(days.output, name="window-days") as day:
            item = {"day": day.day, "shard": day.shard, "role": day.role, "files": day.files}
            prepared = place(prepare_day(**run, **item), "data", is_pure=True)
        assembled = assemble_window(**run, partitions=dsl.Collected(prepared.output), span="window")
        window = place(assembled, "lookup", is_pure=True).output

        found = place(find_backbone(**run, tracking_uri=tracking_uri), "lookup")
        with dsl.If(found.output == "", name="no-backbone"):
            made = make_backbone(**run, tracking_uri=tracking_uri)
        with dsl.Else(name="has-backbone"):
            kept = place(keep_backbone(version=found.output), "lookup", is_pure=True)
        start = {**run, "window": window, "tracking_uri": tracking_uri, "backbone": dsl.OneOf(made.output, kept.output)}

        opened = place(open_comparison(**start, cases=cases), "lookup")
        train_cases(**start, parent=opened.output, cases=cases)

    return window_to_report


def train_and_report(place: Place) -> Any:
    """The fan of cases.

    A DAG of its own: in kfp's local runner (2.17) the body of a loop sees the loop's item in place of any other step's
    output, and only what comes in from outside the DAG as it is.

    Args:
        place: Where its steps execute.
    """

    @dsl.pipeline(name="thawline-train-and-report", description="Trains the cases of a comparison, reports on them.")
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
            trained = place(train_arm(**run, case=case), "training")
        place(report_comparison(**run, cases=cases, results=dsl.Collected(trained.output)), "record")

    return train_and_report
