"""Step: prepared days made into a window."""

from kfp import dsl

from components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def assemble_window(recipe: str, date: str, store: str, partitions: list[str], span: str) -> str:
    """Path of the manifest that names the days.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        partitions: Folders of the prepared days.
        span: ``window``, whose newest day is held out, or ``backbone``.
    """
    from components.step import step

    with step("assemble_window", recipe, date, store, part=span):
        from trainer.windows import manifest

        return manifest.assemble_window(partitions, store, has_heldout=span == "window")
