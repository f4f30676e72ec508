"""Step: one training of a comparison, and its scores of the held-out rows."""

from typing import Any

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def train_arm(
    recipe: str,
    date: str,
    store: str,
    window: str,
    backbone: str,
    tracking_uri: str,
    parent: str,
    case: dict[str, Any],
) -> str:
    """Path of the case's folder: ``case.json``, ``history.json``, ``predictions.parquet``; the model is dropped.

    Args:
        recipe: The recipe as JSON.
        date: Day of the comparison.
        store: Folder that everything we write is kept in.
        window: Path of the longest window's manifest.
        backbone: Version of the backbone to start from.
        tracking_uri: Where MLflow keeps runs and models.
        parent: ID of the comparison's MLflow run.
        case: What to train: arm, window_days and seed.
    """
    from components.step import step

    part = f"{case['arm']}-{int(case['window_days'])}d-seed{int(case['seed'])}"
    with step("train_arm", recipe, date, store, part=part) as run:
        from components.comparison import Case
        from components.train_arm.training import train_case

        return train_case(run, Case.parse(case), window, backbone, tracking_uri, parent)
