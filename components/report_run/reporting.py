"""How a run ended: which step failed, and what it said."""

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from components.records import StepRecord, read_records
from components.run import Run
from trainer import logs
from trainer.storage.publishing import write_json

END_FILE = "end.json"
"""In a run's folder: how its last attempt ended."""

END_PREFIX = "thawline-end "

_WELL = ("SUCCEEDED", "COMPLETE", "CACHED")
"""States of a DAG that ended well, as kfp's local runner and as Kubeflow Pipelines name them."""

_SILENT = "ended without a word: out of memory, out of time, or its host was lost"


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How a run ended.

    Attributes:
        run: Name of its folder.
        recipe: Name of its recipe.
        date: Its UTC day.
        status: ``succeeded`` or ``failed``.
        failed_step: The step that failed, with its part; empty when none did or none is known.
        error: What it said, one line.
        is_mistake: Whether the user can mend it.
    """

    run: str
    recipe: str
    date: str
    status: str
    failed_step: str
    error: str
    is_mistake: bool


def report(recipe: str, date: str, store: str, created_at: str, state: str) -> None:
    """Says how a run ended and writes it down; an error here is told and swallowed.

    Args:
        recipe: The recipe as JSON.
        date: Day of the retrain.
        store: Folder that everything we write is kept in.
        created_at: When the DAG began, an ISO time; empty where that is not known.
        state: What became of the DAG.
    """
    os.environ[logs.STEP_VARIABLE] = "report_run"
    try:
        run = Run.parse(recipe, date, store)
        os.environ[logs.RUN_VARIABLE] = run.folder.name
        end = _end_of(run, created_at, state)
        _say(end)
        write_json(run.folder / END_FILE, asdict(end))
    except Exception as error:  # whatever it is, the run ended as it ended
        logs.say(f"the run's end cannot be reported: {' '.join(str(error).split())}", level="warning")


def read_end(folder: Path) -> RunEnd | None:
    """How the run of this folder ended; None where nothing was written."""
    try:
        return RunEnd(**json.loads((folder / END_FILE).read_text()))
    except OSError:
        return None


def _end_of(run: Run, created_at: str, state: str) -> RunEnd:
    is_well = state.upper() in _WELL
    failed = None if is_well else _failed(read_records(run.folder), created_at)
    return RunEnd(
        run=run.folder.name,
        recipe=run.recipe.name,
        date=run.date.isoformat(),
        status="succeeded" if is_well else "failed",
        failed_step="" if failed is None else f"{failed.step} {failed.part}".strip(),
        error="" if failed is None else failed.error or _SILENT,
        is_mistake=failed is not None and failed.is_mistake,
    )


def _failed(records: list[StepRecord], created_at: str) -> StepRecord | None:
    """The step of this attempt that failed or never ended; of several the first that said why."""
    since_s = datetime.fromisoformat(created_at).timestamp() if created_at else 0.0
    unfinished = [record for record in records if record.started_at_s >= since_s]
    told = [record for record in unfinished if record.state == "failed"]
    return next(iter(told or unfinished), None)


def _say(end: RunEnd) -> None:
    if logs.are_json():
        level: logs.Level = "info" if end.status == "succeeded" else "error"
        logs.say(f"run {end.status}", level=level, **asdict(end))
    else:
        logs.say(END_PREFIX + json.dumps(asdict(end), sort_keys=True))
