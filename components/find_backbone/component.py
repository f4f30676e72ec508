"""Step: the backbone that a retrain starts from."""

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def find_backbone(recipe: str, date: str, store: str, tracking_uri: str) -> str:
    """Version of the newest registered backbone that saw no day of the window; empty when there is none.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        tracking_uri: Where MLflow keeps runs and models.
    """
    from components.step import step

    with step("find_backbone", recipe, date, store) as run:
        from trainer.registry.backbones import find_backbone as find
        from trainer.windows.manifest import window_days

        first_day = window_days(run.date, run.recipe.window.num_days)[0]
        return find(run.recipe, first_day, tracking_uri)
