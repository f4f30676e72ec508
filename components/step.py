"""What every step does around its work: says when it starts and ends, records what it cost, ends well or plainly.

A step writes ``<run folder>/steps/<name>[-<part>].json`` and, on stderr, one event line at its start and one at its
end, so that a cluster's logs and a local terminal tell the same story; where lines are JSON (`trainer.logs`), its
fields lie beside those of every line. While it works, and when it fails, a record says so (`components.records`).
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Literal, NoReturn

import psutil

from components.records import recorded
from components.run import Run
from trainer import logs
from trainer.errors import InputError
from trainer.storage.publishing import write_json

EVENT_PREFIX = "thawline-step "
TERMINATION_LOG_VARIABLE = "THAWLINE_TERMINATION_LOG"
"""Names the file that takes a user's mistake in one line; without it, Kubernetes' own is used where there is one.

It is there and empty when a step starts, as a pod's is.
"""

INPUT_ERROR_EXIT_CODE = 2
STOPPED_EXIT_CODE = 128 + signal.SIGTERM
State = Literal["started", "finished", "failed"]

_SAMPLE_EVERY_S = 0.25
_MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """One line that a step says about itself.

    Attributes:
        step: Its name.
        part: Which of several alike it is, such as a day; empty when there is one.
        state: What happened.
        started_at_s: Seconds since 1970, UTC.
        duration_s: Seconds since it started.
        peak_rss_mib: Most resident memory of the step and its child processes together, in MiB.
    """

    step: str
    part: str
    state: State
    started_at_s: float
    duration_s: float
    peak_rss_mib: float

    def to_line(self) -> str:
        """The event as one line; `from_line` reads it back."""
        return EVENT_PREFIX + json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_line(cls, line: str) -> "StepEvent | None":
        """The event that a line of a log holds, or None."""
        _, found, text = line.partition(EVENT_PREFIX)
        return cls(**json.loads(text)) if found else None


@contextmanager
def step(name: str, recipe: str, date: str, store: str, *, part: str = "") -> Iterator[Run]:
    """Surrounds the work of one step and yields what it runs on.

    SIGTERM, which a cluster sends to a step that is cancelled or loses its host, ends the work as an exception does, so
    that what it began elsewhere is ended too.

    Args:
        name: The step's name, a folder of ``components/``.
        recipe: The recipe as JSON.
        date: Day of the retrain, ``YYYY-MM-DD``.
        store: Folder that everything we write is kept in.
        part: Which of several alike it is.

    Raises:
        SystemExit: The work raised `InputError`: its line is on stderr and in the termination log, the code is 2. Or
            SIGTERM came: the code is 143.
    """
    meter = _Meter()
    os.environ[logs.STEP_VARIABLE] = f"{name} {part}".strip()
    logs.take_over()
    state: State = "failed"
    try:
        try:
            run = Run.parse(recipe, date, store)
            os.environ[logs.RUN_VARIABLE] = run.folder.name
        finally:
            _say(meter.event(name, part, "started"))
        with recorded(run.folder, name, part), _stoppable():
            yield run
        state = "finished"
        _record(run, meter.event(name, part, state))
    except InputError as error:
        _tell_user(str(error))
        raise SystemExit(INPUT_ERROR_EXIT_CODE) from None
    finally:
        _say(meter.event(name, part, state))
        meter.stop()


def read_steps(folder: Path) -> list[StepEvent]:
    """The finished steps recorded in a run's folder, in the order in which they began."""
    events = [StepEvent(**json.loads(path.read_text())) for path in (folder / "steps").glob("*.json")]
    return sorted(events, key=lambda event: event.started_at_s)


def _record(run: Run, event: StepEvent) -> None:
    name = f"{event.step}-{event.part}" if event.part else event.step
    write_json(run.folder / "steps" / f"{name}.json", asdict(event))


@contextmanager
def _stoppable() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # where Python lets no one handle signals
        yield
        return

    def stop(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is on its way out
        raise SystemExit(STOPPED_EXIT_CODE)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(event: StepEvent) -> None:
    if logs.are_json():
        level: logs.Level = "error" if event.state == "failed" else "info"
        logs.say(f"{event.step} {event.part}".strip() + f": {event.state}", level=level, **asdict(event))
    else:
        print(event.to_line(), file=sys.stderr, flush=True)


def _tell_user(message: str) -> None:
    line = " ".join(message.split())
    logs.say(f"error: {line}", level="error")
    target = Path(os.environ.get(TERMINATION_LOG_VARIABLE, "/dev/termination-log"))
    # Days are prepared side by side: the first mistake is the one to mend, later ones often follow from it.
    if target.is_file() and not target.stat().st_size:
        target.write_text(line + "\n")


class _Meter:
    """Measures seconds, and the most memory of this process and its children, by looking now and then."""

    def __init__(self) -> None:
        self._started_at_s, self._started_s = time.time(), time.monotonic()
        self._peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def event(self, name: str, part: str, state: State) -> StepEvent:
        own_peak_bytes = getrusage(RUSAGE_SELF).ru_maxrss * 1024
        return StepEvent(
            step=name,
            part=part,
            state=state,
            started_at_s=round(self._started_at_s, 3),
            duration_s=round(time.monotonic() - self._started_s, 3),
            peak_rss_mib=round(max(self._peak_bytes, own_peak_bytes) / _MIB, 1),
        )

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._done.wait(_SAMPLE_EVERY_S):
            family = [own, *own.children(recursive=True)]
            self._peak_bytes = max(self._peak_bytes, sum(_rss_bytes(process) for process in family))


def _rss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
