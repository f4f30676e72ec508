"""What a run says on stderr: lines for people, or one JSON object a line for a cluster's log collector.

``THAWLINE_LOG_FORMAT=json`` in the environment chooses the latter. A step names its run and itself in the environment,
so that the ranks it starts, here or on other hosts, say whose they are.
"""

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal

FORMAT_VARIABLE = "THAWLINE_LOG_FORMAT"
RUN_VARIABLE = "THAWLINE_RUN"
STEP_VARIABLE = "THAWLINE_STEP"

Level = Literal["info", "warning", "error"]


def are_json() -> bool:
    """Whether lines are JSON objects."""
    return os.environ.get(FORMAT_VARIABLE) == "json"


def say(message: str, *, level: Level = "info", **facts: Any) -> None:
    """Says one line, at once.

    Args:
        message: For people; all that they see.
        level: How grave it is.
        **facts: JSON-able fields beside it, for machines.
    """
    print(_record(message, level, facts) if are_json() else message, file=sys.stderr, flush=True)


def say_exception() -> None:
    """Says the exception being handled, with its traceback."""
    error = sys.exception()
    assert error is not None, "called within an except block"
    if are_json():
        say(_summary(error), level="error", exception="".join(traceback.format_exception(error)))
    else:
        traceback.print_exception(error)


def take_over() -> None:
    """Where lines are JSON: makes one of each record of `logging`, each warning, and an exception that none catches."""
    if not are_json():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter())
    logging.root.handlers = [handler]
    logging.captureWarnings(True)
    sys.excepthook = _say_uncaught


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = {"logger": record.name}
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        level: Level = "info"
        if record.levelno >= logging.WARNING:
            level = "error" if record.levelno >= logging.ERROR else "warning"
        return _record(record.getMessage(), level, facts)


def _say_uncaught(_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(type(error), error, trace))
    say(_summary(error), level="error", exception=text)


def _summary(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _record(message: str, level: Level, facts: dict[str, Any]) -> str:
    names = {"run": os.environ.get(RUN_VARIABLE, ""), "step": os.environ.get(STEP_VARIABLE, "")}
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "level": level, **names, "message": message, **facts})
