"""What has begun in a run and has not ended well: a record a step, in its folder, gone once the step is done.

It tells who asks later which step failed and what it said, and, since a step that is killed says nothing, which one was
at work then.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from trainer.errors import InputError
from trainer.storage.publishing import write_json

UNFINISHED = "unfinished"
"""In a run's folder: the records."""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """A step that is at work, failed, or was killed.

    Attributes:
        step: Its name.
        part: Which of several alike it is; empty when there is one.
        state: ``failed`` once it has said so.
        started_at_s: Seconds since 1970, UTC.
        error: What went wrong, on one line; empty unless it failed.
        is_mistake: Whether that is the user's to mend.
    """

    step: str
    part: str
    state: Literal["started", "failed"]
    started_at_s: float
    error: str = ""
    is_mistake: bool = False


@contextmanager
def recorded(folder: Path, step: str, part: str) -> Iterator[None]:
    """Keeps the record of a step while it works, and when it fails.

    Args:
        folder: The run's folder.
        step: The step's name.
        part: Which of several alike it is.
    """
    path = folder / UNFINISHED / f"{f'{step}-{part}' if part else step}.json"
    record = StepRecord(step=step, part=part, state="started", started_at_s=time.time())
    write_json(path, asdict(record))
    try:
        yield
    except BaseException as error:
        is_mistake = isinstance(error, InputError)
        write_json(path, asdict(replace(record, state="failed", error=_line(error), is_mistake=is_mistake)))
        raise
    path.unlink(missing_ok=True)


def _line(error: BaseException) -> str:
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "stopped from outside"
    told = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    return " ".join(told.split())


def read_records(folder: Path) -> list[StepRecord]:
    """The records in a run's folder, in the order in which the steps began."""
    records = [StepRecord(**json.loads(path.read_text())) for path in (folder / UNFINISHED).glob("*.json")]
    return sorted(records, key=lambda record: record.started_at_s)
