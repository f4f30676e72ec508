"""The DAG that makes a backbone from the days before a window."""

from typing import Any

from kfp import dsl

from components.assemble_window.component import assemble_window
from components.plan_window.component import plan_window
from components.prepare_day.component import prepare_day
from components.pretrain.component import pretrain as pretrain_step
from components.register_backbone.component import register_backbone
from pipelines.ends import reported
from pipelines.places import Place


def pretrain(place: Place) -> Any:
    """The DAG of a pretraining, by itself.

    Args:
        place: Where its steps execute.
    """
    make_backbone = backbone(place)

    @dsl.pipeline(name="thawline-pretrain", description="Makes a backbone from the days before the window of a date.")
    def pretrain(recipe: str, date: str, store: str, tracking_uri: str) -> None:
        """One pretraining.

        Args:
            recipe: The recipe as JSON.
            date: UTC day of the retrain that shall start from it, ``YYYY-MM-DD``.
            store: Folder that everything we write is kept in.
            tracking_uri: Where MLflow keeps runs and models.
        """
        with reported(place, recipe=recipe, date=date, store=store):
            make_backbone(recipe=recipe, date=date, store=store, tracking_uri=tracking_uri)

    return pretrain


def backbone(place: Place) -> Any:
    """The part that other DAGs share: its output is the version of the registered backbone.

    Args:
        place: Where its steps execute.
    """

    @dsl.pipeline(name="thawline-backbone", description="Days prepared, a backbone trained on them and registered.")
    def backbone(recipe: str, date: str, store: str, tracking_uri: str) -> str:
        """Version of the registered backbone."""
        run = {"recipe": recipe, "date": date, "store": store}
        days = place(plan_window(**run, span="backbone"), "lookup")
        with dsl.ParallelFor(days.output, name="backbone-days") as day:
            item = {"day": day.day, "shard": day.shard, "role": day.role, "files": day.files}
            prepared = place(prepare_day(**run, **item), "data", is_pure=True)
        assembled = assemble_window(**run, partitions=dsl.Collected(prepared.output), span="backbone")
        window = place(assembled, "lookup", is_pure=True).output
        trained = place(pretrain_step(**run, window=window), "training", is_pure=True)
        registered = register_backbone(
            **run, window=window, tracking_uri=tracking_uri, backbone=trained.outputs["backbone"]
        )
        version: str = place(registered, "record").output
        return version

    return backbone
