"""Step: the days that a run needs."""

from kfp import dsl

from components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def plan_window(recipe: str, date: str, store: str, span: str) -> list[dict[str, str]]:
    """The days to prepare, oldest first, each with its ``day`` and what the log holds for it, its ``files``.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        span: ``window`` for the training days and the held-out day, ``backbone`` for the days before them.
    """
    from components.step import step

    with step("plan_window", recipe, date, store, part=span) as run:
        from components.plan_window.planning import plan_with_files

        return plan_with_files(run, span)
