"""What a person sees of a run: a line a step as it ends, and the training's progress.

kfp's local runner prints its own account and that of every step to one stream. All of it goes to the run's log; the
steps' events and progress are picked out of it.
"""

import io
import sys
import threading
import time
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import TextIO

from components.step import StepEvent

PROGRESS_MARK = "rows/s"
"""A step's progress lines hold it: loss, rows/s and phase."""

FANS = {"prepare_day": "days", "train_arm": "cases"}
"""Steps that run many times side by side, and what each of their parts is."""

_QUIET_BETWEEN_PROGRESS_S = 10.0


class Console(io.TextIOBase):
    """A stream that writes everything to a log and tells a terminal what matters.

    Args:
        log: Takes every line.
        terminal: Takes the lines for people; the process' stderr when None.
        totals: How many parts a step will have, where that is known.
    """

    def __init__(self, log: TextIO, terminal: TextIO | None = None, *, totals: Mapping[str, int] | None = None) -> None:
        self.failed_step: str | None = None
        self._log = log
        self._terminal = terminal or sys.stderr
        self._totals = totals or {}
        self._is_live = self._terminal.isatty()
        self._lock = threading.Lock()
        self._pending = ""
        self._fan: _Fan | None = None
        self._last_progress_s = 0.0
        self._shows_progress = False

    def write(self, text: str) -> int:
        """Takes what kfp prints; steps that run side by side write from several threads."""
        with self._lock:
            self._log.write(text)
            *lines, self._pending = (self._pending + text).split("\n")
            for line in lines:
                self._read(line)
        return len(text)

    def flush(self) -> None:
        """Brings the log up to date."""
        with self._lock:
            self._log.flush()

    def close(self) -> None:
        """Says what was still being counted."""
        with self._lock:
            self._end_fan()
        super().close()

    def _read(self, line: str) -> None:
        event = StepEvent.from_line(line)
        if event is not None:
            self._show(event)
        elif PROGRESS_MARK in line:
            self._progress(f"{self._fan.text()}  {line.strip()}" if self._fan else line.strip(), is_news=True)

    def _show(self, event: StepEvent) -> None:
        self._log.flush()
        if event.state == "failed" and self.failed_step is None:
            self.failed_step = f"{event.step} {event.part}".strip()
        if self._fan is not None and self._fan.step != event.step:
            self._end_fan()
        if event.step in FANS and event.state != "failed":
            self._fan = self._fan or _Fan(event.step, self._totals.get(event.step))
            self._fan.num_parts += event.state == "finished"
            self._progress(self._fan.text(), is_news=event.step in self._totals)
        elif event.state != "started":
            self._say(step_line(f"{event.step} {event.part}", event.duration_s, event.state))

    def _end_fan(self) -> None:
        if self._fan is not None:
            self._say(self._fan.text())
            self._fan = None

    def _progress(self, text: str, *, is_news: bool = False) -> None:
        now_s = time.monotonic()
        if self._is_live:
            # A line that wraps cannot be redrawn.
            self._terminal.write(f"\r\x1b[K{text[: get_terminal_size().columns - 1]}")
            self._terminal.flush()
            self._shows_progress = True
        elif is_news and now_s - self._last_progress_s > _QUIET_BETWEEN_PROGRESS_S:
            self._last_progress_s = now_s
            self._say(text)

    def _say(self, text: str) -> None:
        self._terminal.write(("\r\x1b[K" if self._shows_progress else "") + text + "\n")
        self._terminal.flush()
        self._shows_progress = False


class _Fan:
    """Counts the parts of a step that runs many times."""

    def __init__(self, step: str, total: int | None) -> None:
        self.step, self._total = step, total
        self.num_parts = 0
        self._started_s = time.monotonic()

    def text(self) -> str:
        counted = f"{self.num_parts}" if self._total is None else f"{self.num_parts} of {self._total}"
        return step_line(f"{self.step} ({counted} {FANS[self.step]})", time.monotonic() - self._started_s, "finished")


def step_line(name: str, duration_s: float, state: str) -> str:
    """A step that is over, for people.

    Args:
        name: The step, with its part.
        duration_s: What it took.
        state: ``finished``, which goes without saying, or what else became of it.
    """
    return f"  {name.strip():<32} {duration_s:8.1f} s" + ("" if state == "finished" else f"  {state}")
