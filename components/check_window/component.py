"""Step: the verdict on a window's data."""

from kfp import dsl

from components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def check_window(recipe: str, date: str, store: str, window: str) -> str:
    """The verdict, ``ok`` or ``warn``; the run ends here when it is ``stop``.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        window: Path of the window's manifest.
    """
    from components.step import step

    with step("check_window", recipe, date, store) as run:
        from components.check_window.checking import check

        return check(run, window)
