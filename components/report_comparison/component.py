"""Step: the arms judged side by side."""

from typing import Any

from kfp import dsl

from components.images import TRAINER_IMAGE


@dsl.component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def report_comparison(
    recipe: str,
    date: str,
    store: str,
    window: str,
    backbone: str,
    tracking_uri: str,
    parent: str,
    cases: list[dict[str, Any]],
    results: list[str],
) -> None:
    """Judges the arms against the baseline; writes the report, and logs it to the comparison's MLflow run.

    Args:
        recipe: The recipe as JSON.
        date: Day of the comparison.
        store: Folder that everything we write is kept in.
        window: Path of the longest window's manifest.
        backbone: Version of the backbone that all cases started from.
        tracking_uri: Where MLflow keeps runs and models.
        parent: ID of the comparison's MLflow run.
        cases: What was trained: arm, window_days and seed of each.
        results: The folder of each case, in the same order.
    """
    from components.step import step

    with step("report_comparison", recipe, date, store) as run:
        from components.comparison import Comparison
        from components.report_comparison.reporting import report

        report(Comparison.parse(run, cases), window, backbone, tracking_uri, parent, results)
