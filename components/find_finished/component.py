"""Step: has this retrain been done already?"""

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def find_finished(recipe: str, date: str, store: str, window: str, backbone: str, tracking_uri: str) -> str:
    """``finished`` when MLflow holds this very retrain: recipe, date, window and backbone; else ``due``.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        window: Path of the window's manifest.
        backbone: Version of the backbone; empty when there is none.
        tracking_uri: Where MLflow keeps runs and models.
    """
    from components.step import step

    with step("find_finished", recipe, date, store) as run:
        from components.find_finished.finished import restore_summary

        return "finished" if restore_summary(run, window, backbone, tracking_uri) else "due"
