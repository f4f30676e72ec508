"""Step: a backbone made findable."""

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def register_backbone(
    recipe: str, date: str, store: str, window: str, tracking_uri: str, backbone: dsl.Input[dsl.Model]
) -> str:
    """Version under which the backbone is registered.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        window: Path of the manifest of the backbone's days.
        tracking_uri: Where MLflow keeps runs and models.
        backbone: Folder of the weights and their description.
    """
    from components.step import step

    with step("register_backbone", recipe, date, store) as run:
        from components.register_backbone.registration import register

        return register(run, window, backbone.path, tracking_uri)
