import json
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from components.records import read_records, recorded
from components.report_run.reporting import END_PREFIX, RunEnd, read_end, report
from components.run import Run, parse_date
from pipelines.recipes import synthetic
from trainer.errors import InputError

RECIPE, DATE = synthetic().to_json(), "2024-01-10"
LOCAL = ""


@pytest.fixture(autouse=True)
def plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("THAWLINE_LOG_FORMAT", "THAWLINE_RUN", "THAWLINE_STEP"):
        monkeypatch.setenv(name, "")


def folder(store: Path) -> Path:
    return Run(recipe=synthetic(), date=parse_date(DATE), store=str(store)).folder


def failing(error: BaseException) -> Callable[[Path, str, str], None]:
    def step(folder: Path, name: str, part: str) -> None:
        with pytest.raises(type(error)), recorded(folder, name, part):
            raise error

    return step


def killed(folder: Path, name: str, part: str) -> None:
    """A step whose process goes without a word."""
    process = os.fork()
    if not process:
        with recorded(folder, name, part):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)


def test_a_step_at_work_is_on_record_and_one_that_is_done_is_not(tmp_path: Path) -> None:
    with recorded(tmp_path, "prepare_day", "2024-01-05"):
        (found,) = read_records(tmp_path)
        assert (found.step, found.part, found.state) == ("prepare_day", "2024-01-05", "started")
    assert read_records(tmp_path) == []


def test_a_second_try_takes_the_first_one_s_place(tmp_path: Path) -> None:
    failing(RuntimeError("no"))(tmp_path, "train", "")
    assert [found.state for found in read_records(tmp_path)] == ["failed"]
    with recorded(tmp_path, "train", ""):
        pass
    assert read_records(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "told", "is_mistake"),
    [
        (InputError("logs: no day;\n add one"), "logs: no day; add one", True),
        (RuntimeError("torchrun failed"), "RuntimeError: torchrun failed", False),
        (SystemExit(143), "stopped from outside", False),
    ],
)
def test_what_a_step_said_is_on_record(tmp_path: Path, error: BaseException, told: str, is_mistake: bool) -> None:
    failing(error)(tmp_path, "train", "")
    (found,) = read_records(tmp_path)
    assert (found.state, found.error, found.is_mistake) == ("failed", told, is_mistake)


@pytest.mark.parametrize("state", ["SUCCEEDED", "COMPLETE"])
def test_a_good_run_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str) -> None:
    report(RECIPE, DATE, str(tmp_path), LOCAL, state)
    end = read_end(folder(tmp_path))
    assert end == RunEnd(
        run=folder(tmp_path).name,
        recipe="synthetic",
        date=DATE,
        status="succeeded",
        failed_step="",
        error="",
        is_mistake=False,
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(END_PREFIX)
    assert json.loads(line.removeprefix(END_PREFIX))["status"] == "succeeded"


def end_of(store: Path, created_at: str = LOCAL) -> RunEnd:
    report(RECIPE, DATE, str(store), created_at, "FAILED")
    end = read_end(folder(store))
    assert end is not None and end.status == "failed"
    return end


def test_a_failed_run_names_its_step_and_what_it_said(tmp_path: Path) -> None:
    failing(InputError("no logs for 2024-01-05"))(folder(tmp_path), "prepare_day", "2024-01-05")
    end = end_of(tmp_path)
    assert (end.failed_step, end.error, end.is_mistake) == ("prepare_day 2024-01-05", "no logs for 2024-01-05", True)


def test_a_killed_step_is_named_unless_another_said_why(tmp_path: Path) -> None:
    killed(folder(tmp_path), "train", "")
    end = end_of(tmp_path)
    assert end.failed_step == "train"
    assert end.error.startswith("ended without a word: out of memory")
    failing(RuntimeError("no"))(folder(tmp_path), "prepare_day", "2024-01-05")
    assert end_of(tmp_path).failed_step == "prepare_day 2024-01-05"


def test_an_earlier_attempt_is_not_blamed(tmp_path: Path) -> None:
    failing(RuntimeError("no"))(folder(tmp_path), "train", "")
    later, earlier = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(hours=1)
    assert end_of(tmp_path, later.isoformat()).failed_step == ""
    assert end_of(tmp_path, earlier.isoformat()).failed_step == "train"


def test_a_scheduled_run_is_that_of_its_utc_day(tmp_path: Path) -> None:
    report(RECIPE, "2024-01-10T06:00:00Z", str(tmp_path), LOCAL, "SUCCEEDED")
    assert read_end(folder(tmp_path)) is not None


@pytest.mark.parametrize(("recipe", "date"), [("{}", DATE), ("no JSON", DATE), (RECIPE, "someday")])
def test_a_report_that_cannot_be_made_fails_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str, date: str
) -> None:
    report(recipe, date, str(tmp_path), LOCAL, "SUCCEEDED")
    assert "cannot be reported" in capsys.readouterr().err


def test_a_store_that_cannot_be_written_fails_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    report(RECIPE, DATE, str(tmp_path / "file"), LOCAL, "FAILED")
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(END_PREFIX) and "cannot be reported" in said[1]


def test_on_a_cluster_it_is_one_json_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THAWLINE_LOG_FORMAT", "json")
    failing(InputError("no"))(folder(tmp_path), "train", "")
    report(RECIPE, DATE, str(tmp_path), LOCAL, "FAILED")
    said = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (said["level"], said["step"], said["run"]) == ("error", "report_run", folder(tmp_path).name)
    assert (said["status"], said["failed_step"], said["error"]) == ("failed", "train", "no")
