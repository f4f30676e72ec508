"""Checking a window's newest days, and saying what is odd about them."""

from components.run import Run
from trainer import logs
from trainer.windows.quality.record import refuse_stop, write_record
from trainer.windows.quality.window import check_window


def check(run: Run, window: str) -> str:
    """Writes the checks of a window to the run's folder and returns the verdict.

    Args:
        run: Recipe and date.
        window: Path of the window's manifest.

    Raises:
        InputError: The verdict is ``stop``.
    """
    report = check_window(run.recipe, window)
    page = write_record(report, run.folder)
    for finding in report.breaches:
        logs.say(f"data of {finding.line}", level="warning")
    refuse_stop(report, page)
    return report.verdict
