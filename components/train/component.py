"""Step: the training itself."""

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def train(
    recipe: str,
    date: str,
    store: str,
    window: str,
    backbone: str,
    tracking_uri: str,
    training: dsl.Output[dsl.Model],
) -> None:
    """Trains a candidate by the recipe's arm.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        window: Path of the window's manifest.
        backbone: Version of the backbone to start from.
        tracking_uri: Where MLflow keeps runs and models.
        training: Folder of the trained model and its history.
    """
    from components.step import step

    with step("train", recipe, date, store) as run:
        from components.train.training import train_from_backbone

        train_from_backbone(run, window, backbone, tracking_uri, training.path)
