"""Following a run on a cluster: a line a step as it ends, as for a run on this machine."""

import sys
import time
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, TextIO

from pipelines.cluster.client import Client
from pipelines.cluster.runs import ENDED, SUCCEEDED, Submission
from pipelines.console import FANS, step_line
from pipelines.errors import RunFailedError

_EVERY_S = 5.0
_OVER = ("SUCCEEDED", "FAILED", "CANCELED")


def follow(client: Client, submission: Submission, steps: Collection[str], *, every_s: float = _EVERY_S) -> None:
    """Tells of a run's steps on stderr until it has ended. An interrupt leaves it at work.

    Args:
        client: Of the server.
        submission: The run.
        steps: Names of the DAG's tasks that are steps, as the server names them.
        every_s: Seconds between looks.

    Raises:
        RunFailedError: It failed or was cancelled, or the server is lost.
    """
    progress = _Progress(steps)
    try:
        while True:
            run = client.call("look at a run", client.runs.run_service_get_run, submission.run_id)
            is_over = run.state in ENDED
            progress.see(_tasks(run), is_over=is_over)
            if is_over:
                break
            time.sleep(every_s)
    except KeyboardInterrupt:
        print(f"the run goes on: {submission.page}\nthe same command follows it again", file=sys.stderr)
        raise
    except RunFailedError as error:
        raise RunFailedError(f"{error}; the run goes on, and the same command follows it again") from None
    if run.state != SUCCEEDED:
        raise RunFailedError(f"{_what_failed(run, progress.failed_step)}; see {submission.page}")


def _what_failed(run: Any, step: str | None) -> str:
    if run.state == "CANCELED":
        return f"{run.display_name} was cancelled"
    said = f" ({run.error.message})" if run.error is not None and run.error.message else ""
    return f"{step or 'a step'} failed{said}"


def _tasks(run: Any) -> Iterable[Any]:
    return (run.run_details and run.run_details.task_details) or ()


class _Progress:
    """Says each step once, when it is over; the parts of a fan together, when all of them are.

    Args:
        steps: Tasks that are steps; the server lists what surrounds them too.
        stream: Takes the lines; the process' stderr when None.
    """

    def __init__(self, steps: Collection[str], stream: TextIO | None = None) -> None:
        self.failed_step: str | None = None
        self._steps = steps
        self._stream = stream or sys.stderr
        self._told: set[str] = set()

    def see(self, tasks: Iterable[Any], *, is_over: bool) -> None:
        """Takes what the server tells of the tasks now."""
        begun = [task for task in tasks if task.display_name in self._steps and task.state not in (None, "SKIPPED")]
        begun.sort(key=_begin)
        fans: dict[str, list[Any]] = {}
        for task in begun:
            if task.task_id in self._told:
                continue
            step = task.display_name.replace("-", "_")
            if step in FANS:
                fans.setdefault(step, []).append(task)
            elif task.state in _OVER:
                self._tell(step, [task])
        for step, parts in fans.items():
            # Parts start one after another: the start of what comes after them tells that they are all there.
            is_whole = is_over or any(_begin(task) >= max(map(_end, parts)) for task in begun if task not in parts)
            if is_whole and all(part.state in _OVER for part in parts):
                self._tell(step, parts)

    def _tell(self, step: str, parts: list[Any]) -> None:
        self._told |= {part.task_id for part in parts}
        is_failed = any(part.state != SUCCEEDED for part in parts)
        if is_failed and self.failed_step is None:
            self.failed_step = step
        name = f"{step} ({len(parts)} {FANS[step]})" if step in FANS else step
        duration_s = max(0.0, max(map(_end, parts)) - min(map(_begin, parts)))
        print(step_line(name, duration_s, "failed" if is_failed else "finished"), file=self._stream, flush=True)


def _begin(task: Any) -> float:
    return _seconds(task.start_time)


def _end(task: Any) -> float:
    return _seconds(task.end_time)


def _seconds(at: datetime | None) -> float:
    """Seconds since 1970, which is also what the server says of a time that is not yet."""
    return 0.0 if at is None else at.timestamp()
