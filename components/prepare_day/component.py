"""Step: one day of logs, or one shard of it, made ready."""

from kfp import dsl

from components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def prepare_day(recipe: str, date: str, store: str, day: str, shard: str, role: str, files: str) -> str:
    """Path of the prepared day's partition; a day that is there already is left as it is.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        day: The day to prepare, ``YYYY-MM-DD``.
        shard: Which of the recipe's ``window.num_shards`` parts of it, from 0.
        role: ``heldout`` where models are judged on it, and its negatives are never sampled; else ``training``.
        files: What the log holds for that day; a cache would otherwise take a mended day for the old one.
    """
    from components.step import step

    part = day if shard == "0" else f"{day}-shard-{shard}"
    with step("prepare_day", recipe, date, store, part=part) as run:
        from components.run import parse_date
        from trainer.windows import preparation

        is_heldout = role == "heldout"
        return preparation.prepare_day(run.recipe, parse_date(day), store, is_heldout=is_heldout, shard=int(shard))
