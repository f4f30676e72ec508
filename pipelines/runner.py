"""Running a DAG on this machine: kfp's subprocess runner, quietened, with a user's mistakes told in one line."""

import builtins
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from kfp import local

from components.run import Run
from components.step import TERMINATION_LOG_VARIABLE
from pipelines.console import Console
from pipelines.errors import RunFailedError
from trainer.errors import InputError


def run_locally(
    dag: Callable[..., Any],
    run: Run,
    tracking_uri: str,
    *,
    folder: Path,
    totals: Mapping[str, int] | None = None,
    **parameters: Any,
) -> None:
    """Runs a DAG in subprocesses, a step each, and returns when it is done.

    Args:
        dag: A compiled-in pipeline of ``pipelines.catalog``.
        run: Recipe, date and store.
        tracking_uri: Where MLflow keeps runs and models.
        folder: Where the log, kfp's files and the results of an earlier attempt lie.
        totals: How many parts a step will have, where that is known.
        **parameters: The DAG's own parameters.

    Raises:
        InputError: A step met a user's mistake.
        RunFailedError: A step failed otherwise.
    """
    log_path, termination_path, root = (folder / name for name in ("run.log", "termination.log", "kfp"))
    _start_afresh(folder)
    os.environ[TERMINATION_LOG_VARIABLE] = str(termination_path.resolve())
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root), raise_on_error=True)
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
            mistake = termination_path.read_text().strip()
            if mistake:
                raise InputError(mistake) from None
            raise RunFailedError(f"{console.failed_step or 'a step'} failed; its log is {log_path}") from None
        finally:
            # kfp indents a task's output by replacing `print`, and tasks side by side put back each other's.
            builtins.print = print_
            console.close()


def _start_afresh(folder: Path) -> None:
    """Drops what an earlier attempt at this run left; the prepared days lie elsewhere and stay."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("kfp", "steps", "report"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in ("summary.json", "backbone.json", "termination.log"):
            (folder / name).unlink(missing_ok=True)
        (folder / "termination.log").touch()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); choose another --store") from None
