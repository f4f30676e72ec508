"""Step: the MLflow run that a comparison's trainings appear under."""

from typing import Any

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def open_comparison(
    recipe: str, date: str, store: str, window: str, backbone: str, tracking_uri: str, cases: list[dict[str, Any]]
) -> str:
    """ID of the parent run; the same comparison again goes on in the one that it has.

    Args:
        recipe: The recipe as JSON.
        date: Day of the comparison.
        store: Folder that everything we write is kept in.
        window: Path of the longest window's manifest.
        backbone: Version of the backbone to start from.
        tracking_uri: Where MLflow keeps runs and models.
        cases: What is trained: arm, window_days and seed of each.
    """
    from components.step import step

    with step("open_comparison", recipe, date, store) as run:
        from components.comparison import Comparison
        from components.open_comparison.opening import open_

        return open_(Comparison.parse(run, cases), window, backbone, tracking_uri)
