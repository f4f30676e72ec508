"""Step: what every DAG ends with."""

from kfp import dsl

from components.images import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def report_run(recipe: str, date: str, store: str, created_at: str, status: dsl.PipelineTaskFinalStatus) -> None:
    """Says how the DAG ended, to logs and to the run's folder; never fails itself.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        created_at: When the DAG began, an ISO time; what was recorded before is of an earlier attempt. Empty where that
            is not known.
        status: What became of it.
    """
    from components.report_run.reporting import report

    report(recipe, date, store, created_at, status.state)
