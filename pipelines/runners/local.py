"""Running a DAG on this machine by kfp's local runners, quietened, with a user's mistakes told in one line."""

import builtins
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from kfp import local

from components.run import Run
from components.step import TERMINATION_LOG_VARIABLE
from pipelines.console import Console
from pipelines.errors import RunFailedError
from pipelines.runners.docker import containers
from pipelines.runners.folder import KFP, TERMINATION_LOG, start_afresh
from trainer.errors import InputError


@contextmanager
def processes(dag: Any, run: Run, folder: Path) -> Iterator[local.SubprocessRunner]:
    """A process a step, with the run's folder made ready."""
    start_afresh(folder)
    os.environ[TERMINATION_LOG_VARIABLE] = str((folder / TERMINATION_LOG).resolve())
    yield local.SubprocessRunner(use_venv=False)


PLACES: dict[str, Callable[[Any, Run, Path], AbstractContextManager[Any]]] = {"local": processes, "docker": containers}
"""What steps run in on this machine, by the name that ``--runner`` takes."""


def run_locally(
    dag: Callable[..., Any],
    run: Run,
    tracking_uri: str,
    *,
    runner: str,
    folder: Path,
    totals: Mapping[str, int] | None = None,
    **parameters: Any,
) -> None:
    """Runs a DAG on this machine and returns when it is done.

    Args:
        dag: A compiled-in pipeline of ``pipelines.catalog``.
        run: Recipe, date and store.
        tracking_uri: Where MLflow keeps runs and models.
        runner: One of `PLACES`.
        folder: Where the log, kfp's files and the results of an earlier attempt lie.
        totals: How many parts a step will have, where that is known.
        **parameters: The DAG's own parameters.

    Raises:
        InputError: A step met a user's mistake, or what the runner needs is not there.
        RunFailedError: A step failed otherwise.
    """
    log_path = folder / "run.log"
    with PLACES[runner](dag, run, folder) as place:
        local.init(place, pipeline_root=str(folder / KFP), raise_on_error=True)
        with log_path.open("w") as log:
            console, print_ = Console(log, totals=totals), builtins.print
            try:
                with redirect_stdout(console), redirect_stderr(console):
                    dag(
                        recipe=run.recipe.to_json(),
                        date=run.date.isoformat(),
                        store=run.store,
                        tracking_uri=tracking_uri,
                        **parameters,
                    )
            except RuntimeError:
                mistake = (folder / TERMINATION_LOG).read_text().strip()
                if mistake:
                    raise InputError(mistake) from None
                raise RunFailedError(f"{console.failed_step or 'a step'} failed; its log is {log_path}") from None
            finally:
                # kfp indents a task's output by replacing `print`, and tasks side by side put back each other's.
                builtins.print = print_
                console.close()
