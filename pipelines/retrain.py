"""The daily DAG: fresh window, backbone, training, comparison, decision."""

from typing import Any

from kfp import dsl

from components.assemble_window.component import assemble_window
from components.check_window.component import check_window
from components.evaluate.component import evaluate
from components.find_backbone.component import find_backbone
from components.find_finished.component import find_finished
from components.keep_backbone.component import keep_backbone
from components.plan_window.component import plan_window
from components.prepare_day.component import prepare_day
from components.register.component import register
from components.train.component import train
from pipelines.ends import reported
from pipelines.places import Place
from pipelines.pretrain import backbone as backbone_of


def retrain(place: Place) -> Any:
    """The DAG of one retrain.

    Args:
        place: Where its steps execute.
    """
    decide = window_to_decision(place)

    @dsl.pipeline(name="thawline-retrain", description="Retrains a ranker on the window of a date and decides on it.")
    def retrain(recipe: str, date: str, store: str, tracking_uri: str) -> None:
        """One retrain; a finished one is found and nothing is done twice.

        Args:
            recipe: The recipe as JSON.
            date: UTC day on which it runs, ``YYYY-MM-DD``; the day before is held out.
            store: Folder that everything we write is kept in.
            tracking_uri: Where MLflow keeps runs and models.
        """
        with reported(place, recipe=recipe, date=date, store=store):
            decide(recipe=recipe, date=date, store=store, tracking_uri=tracking_uri)

    return retrain


def scheduled_retrain(place: Place) -> Any:
    """The DAG of a retrain whose date is that of the time it was scheduled for.

    A recurring run cannot put a date into a parameter: Kubeflow Pipelines 2 replaces ``[[ScheduledTime]]`` in runs of
    version 1 only. It does replace a placeholder that is a task's own input.

    Args:
        place: Where its steps execute.
    """
    decide = window_to_decision(place)
    date = dsl.PIPELINE_JOB_SCHEDULE_TIME_UTC_PLACEHOLDER

    @dsl.pipeline(name="thawline-scheduled-retrain", description="Retrains on the window of the day it is scheduled.")
    def scheduled_retrain(recipe: str, store: str, tracking_uri: str) -> None:
        """The retrain of the UTC day that it is scheduled for.

        Args:
            recipe: The recipe as JSON.
            store: Folder that everything we write is kept in.
            tracking_uri: Where MLflow keeps runs and models.
        """
        with reported(place, recipe=recipe, date=date, store=store):
            decide(recipe=recipe, date=date, store=store, tracking_uri=tracking_uri)

    return scheduled_retrain


def window_to_decision(place: Place) -> Any:
    """What both do.

    Args:
        place: Where its steps execute.
    """
    make_backbone = backbone_of(place)

    @dsl.pipeline(name="thawline-window-to-decision", description="From the days of a window to a decision.")
    def window_to_decision(recipe: str, date: str, store: str, tracking_uri: str) -> None:
        run = {"recipe": recipe, "date": date, "store": store}
        days = place(plan_window(**run, span="window"), "lookup")
        with dsl.ParallelFor(days.output, name="window-days") as day:
            item = {"day": day.day, "shard": day.shard, "role": day.role, "files": day.files}
            prepared = place(prepare_day(**run, **item), "data", is_pure=True)
        assembled = assemble_window(**run, partitions=dsl.Collected(prepared.output), span="window")
        window = place(assembled, "lookup", is_pure=True).output
        checked = place(check_window(**run, window=window), "data")

        found = place(find_backbone(**run, tracking_uri=tracking_uri).after(checked), "lookup")
        state = find_finished(**run, window=window, backbone=found.output, tracking_uri=tracking_uri)
        state = place(state, "lookup")
        with dsl.If(state.output == "due", name="due"):
            with dsl.If(found.output == "", name="no-backbone"):
                made = make_backbone(**run, tracking_uri=tracking_uri)
            with dsl.Else(name="has-backbone"):
                kept = place(keep_backbone(version=found.output), "lookup", is_pure=True)
            start = {**run, "window": window, "tracking_uri": tracking_uri}
            backbone = dsl.OneOf(made.output, kept.output)
            training = place(train(**start, backbone=backbone), "training", is_pure=True).outputs["training"]
            judged = place(evaluate(**start, training=training), "scoring")
            recorded = register(**start, backbone=backbone, training=training, evaluation=judged.outputs["evaluation"])
            place(recorded, "record")

    return window_to_decision
