"""Step: candidate against champion."""

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def evaluate(
    recipe: str,
    date: str,
    store: str,
    window: str,
    tracking_uri: str,
    training: dsl.Input[dsl.Model],
    evaluation: dsl.Output[dsl.Artifact],
) -> None:
    """Scores candidate and champion on the same held-out rows.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        window: Path of the window's manifest.
        tracking_uri: Where MLflow keeps runs and models.
        training: Folder of the candidate.
        evaluation: JSON of the metrics and lifts.
    """
    from components.step import step

    with step("evaluate", recipe, date, store) as run:
        from components.evaluate.comparison import compare

        compare(run, window, training.path, tracking_uri, evaluation.path)
