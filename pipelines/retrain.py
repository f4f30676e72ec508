"""The daily DAG: fresh window, backbone, training, comparison, decision."""

from kfp import dsl

from components.assemble_window.component import assemble_window
from components.evaluate.component import evaluate
from components.find_backbone.component import find_backbone
from components.find_finished.component import find_finished
from components.keep_backbone.component import keep_backbone
from components.plan_window.component import plan_window
from components.prepare_day.component import prepare_day
from components.register.component import register
from components.train.component import train
from pipelines.pretrain import pretrain


@dsl.pipeline(name="thawline-retrain", description="Retrains a ranker on the window of a date and decides on it.")
def retrain(recipe: str, date: str, store: str, tracking_uri: str) -> None:
    """One retrain; a finished one is found and nothing is done twice.

    Args:
        recipe: The recipe as JSON.
        date: UTC day on which it runs, ``YYYY-MM-DD``; the day before is held out.
        store: Folder that everything we write is kept in.
        tracking_uri: Where MLflow keeps runs and models.
    """
    run = {"recipe": recipe, "date": date, "store": store}
    days = plan_window(**run, span="window")
    with dsl.ParallelFor(days.output, name="window-days") as day:
        prepared = prepare_day(**run, day=day)
    window = assemble_window(**run, partitions=dsl.Collected(prepared.output), span="window").output

    # What is already there is looked up anew each time: a cached answer would be a stale one.
    found = find_backbone(**run, tracking_uri=tracking_uri).set_caching_options(False)
    state = find_finished(**run, window=window, backbone=found.output, tracking_uri=tracking_uri)
    state.set_caching_options(False)
    with dsl.If(state.output == "due", name="due"):
        with dsl.If(found.output == "", name="no-backbone"):
            made = pretrain(**run, tracking_uri=tracking_uri)
        with dsl.Else(name="has-backbone"):
            kept = keep_backbone(version=found.output)
        start = {**run, "window": window, "tracking_uri": tracking_uri}
        backbone = dsl.OneOf(made.output, kept.output)
        training = train(**start, backbone=backbone).outputs["training"]
        judged = evaluate(**start, training=training)
        judged.set_caching_options(False)
        recorded = register(**start, backbone=backbone, training=training, evaluation=judged.outputs["evaluation"])
        recorded.set_caching_options(False)
