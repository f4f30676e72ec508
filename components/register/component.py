"""Step: the decision and its record."""

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def register(
    recipe: str,
    date: str,
    store: str,
    window: str,
    backbone: str,
    tracking_uri: str,
    training: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
) -> None:
    """Registers the candidate, and makes it champion when the gate says so.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        window: Path of the window's manifest.
        backbone: Version of the backbone that the candidate started from.
        tracking_uri: Where MLflow keeps runs and models.
        training: Folder of the candidate.
        evaluation: JSON of the metrics and lifts.
    """
    from components.step import step

    with step("register", recipe, date, store) as run:
        from components.register.registration import register as register_and_summarise

        register_and_summarise(run, window, backbone, tracking_uri, training.path, evaluation.path)
