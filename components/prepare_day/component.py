"""Step: one day of logs made ready."""

from kfp import dsl

from components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def prepare_day(recipe: str, date: str, store: str, day: str, files: str) -> str:
    """Path of the prepared day's partition; a day that is there already is left as it is.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        day: The day to prepare, ``YYYY-MM-DD``.
        files: What the log holds for that day; a cache would otherwise take a mended day for the old one.
    """
    from components.step import step

    with step("prepare_day", recipe, date, store, part=day) as run:
        from components.run import parse_date
        from trainer.windows import preparation

        return preparation.prepare_day(run.recipe, parse_date(day), store)
