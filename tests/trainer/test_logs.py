import json
import logging
import subprocess
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trainer import logs

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.FORMAT_VARIABLE, "json")
    monkeypatch.setenv(logs.RUN_VARIABLE, "tiny-2024-01-09")
    monkeypatch.setenv(logs.STEP_VARIABLE, "train")


def records_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_people_see_the_message_alone(capfd: pytest.CaptureFixture[str]) -> None:
    logs.say("epoch 1: done", epoch=1)
    assert capfd.readouterr().err == "epoch 1: done\n"


def test_a_collector_gets_one_object_a_line(in_json: None, capfd: pytest.CaptureFixture[str]) -> None:
    logs.say("two\nlines", level="warning", epoch=1)
    (record,) = records_of(capfd.readouterr().err)
    at = datetime.fromisoformat(record.pop("time"))
    assert abs((datetime.now(UTC) - at).total_seconds()) < 60
    assert record == {
        "level": "warning",
        "run": "tiny-2024-01-09",
        "step": "train",
        "message": "two\nlines",
        "epoch": 1,
    }


def test_an_exception_is_one_line_with_its_traceback(in_json: None, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        logs.say_exception()
    (record,) = records_of(capfd.readouterr().err)
    assert (record["level"], record["message"]) == ("error", "ValueError: wrong")
    assert "Traceback" in record["exception"]
    assert "test_logs.py" in record["exception"]


def test_people_see_the_traceback_as_ever(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        logs.say_exception()
    assert capfd.readouterr().err.startswith("Traceback")


OTHERS = """
import logging, warnings
from trainer import logs
logs.take_over()
logging.getLogger("mlflow").warning("%d things", 3)
warnings.warn("old", DeprecationWarning, stacklevel=1)
raise RuntimeError("broken")
"""


def test_what_others_log_is_taken_over(in_json: None) -> None:
    command = [sys.executable, "-W", "always", "-c", OTHERS]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    records = records_of(done.stderr)
    assert [record["level"] for record in records] == ["warning", "warning", "error"]
    assert (records[0]["logger"], records[0]["message"]) == ("mlflow", "3 things")
    assert "DeprecationWarning: old" in records[1]["message"]
    assert records[2]["message"] == "RuntimeError: broken"
    assert {record["run"] for record in records} == {"tiny-2024-01-09"}


def test_people_keep_their_own_logging() -> None:
    before = list(logging.root.handlers), sys.excepthook, warnings.showwarning
    logs.take_over()
    assert before == (list(logging.root.handlers), sys.excepthook, warnings.showwarning)
