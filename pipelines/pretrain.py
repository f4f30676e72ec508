"""The DAG that makes a backbone from the days before a window."""

from kfp import dsl

from components.assemble_window.component import assemble_window
from components.plan_window.component import plan_window
from components.prepare_day.component import prepare_day
from components.pretrain.component import pretrain as pretrain_step
from components.register_backbone.component import register_backbone


@dsl.pipeline(name="thawline-pretrain", description="Makes a backbone from the days before the window of a date.")
def pretrain(recipe: str, date: str, store: str, tracking_uri: str) -> str:
    """Version of the registered backbone.

    Args:
        recipe: The recipe as JSON.
        date: UTC day of the retrain that shall start from it, ``YYYY-MM-DD``.
        store: Folder that everything we write is kept in.
        tracking_uri: Where MLflow keeps runs and models.
    """
    run = {"recipe": recipe, "date": date, "store": store}
    days = plan_window(**run, span="backbone")
    with dsl.ParallelFor(days.output, name="backbone-days") as day:
        prepared = prepare_day(**run, day=day)
    window = assemble_window(**run, partitions=dsl.Collected(prepared.output), span="backbone").output
    trained = pretrain_step(**run, window=window)
    registered = register_backbone(
        **run, window=window, tracking_uri=tracking_uri, backbone=trained.outputs["backbone"]
    )
    version: str = registered.output
    return version
