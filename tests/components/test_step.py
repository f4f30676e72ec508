import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from components.run import Run
from components.step import TERMINATION_LOG_VARIABLE, StepEvent, read_steps, step
from pipelines.recipes import synthetic
from trainer import logs
from trainer.errors import InputError

REPOSITORY = Path(__file__).parents[2]
RECIPE = synthetic().to_json()
DATE = "2024-01-09"


@pytest.fixture
def termination_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "termination.log"
    path.touch()
    monkeypatch.setenv(TERMINATION_LOG_VARIABLE, str(path))
    return path


def test_a_step_yields_its_run_and_records_its_cost(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with step("train", RECIPE, DATE, str(tmp_path)) as run:
        assert run == Run.parse(RECIPE, DATE, str(tmp_path))
        time.sleep(0.05)
    (event,) = read_steps(run.folder)
    assert (event.step, event.part, event.state) == ("train", "", "finished")
    assert 0.05 <= event.duration_s < 5
    assert event.peak_rss_mib > 10
    told = [StepEvent.from_line(line) for line in capfd.readouterr().err.splitlines()]
    assert [found.state for found in told if found] == ["started", "finished"]


def test_memory_of_child_processes_counts(tmp_path: Path) -> None:
    with step("train", RECIPE, DATE, str(tmp_path)) as run:
        hog = "import time; block = bytearray(b'x') * (400 * 1024**2); time.sleep(1)"
        subprocess.run([sys.executable, "-c", hog], check=True)
    (event,) = read_steps(run.folder)
    assert event.peak_rss_mib > 400


def test_parts_have_records_of_their_own_in_the_order_of_their_start(tmp_path: Path) -> None:
    for part in ("2024-01-02", "2024-01-01"):
        with step("prepare_day", RECIPE, DATE, str(tmp_path), part=part) as run:
            time.sleep(0.01)
    assert [event.part for event in read_steps(run.folder)] == ["2024-01-02", "2024-01-01"]


def test_a_users_mistake_is_one_line_and_code_2(
    tmp_path: Path, termination_log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_, step("train", RECIPE, DATE, str(tmp_path)) as run:
        raise InputError("column 'ts': missing;\nadd it")
    assert exit_.value.code == 2
    assert termination_log.read_text() == "column 'ts': missing; add it\n"
    captured = capfd.readouterr().err
    assert "Traceback" not in captured
    assert captured.splitlines()[1] == "error: column 'ts': missing; add it"
    assert read_steps(run.folder) == []


def test_a_bad_date_is_a_users_mistake(tmp_path: Path, termination_log: Path) -> None:
    with pytest.raises(SystemExit), step("train", RECIPE, "yesterday", str(tmp_path)):
        pass
    assert "date 'yesterday'" in termination_log.read_text()


def test_the_first_mistake_stays(tmp_path: Path, termination_log: Path) -> None:
    for message in ("first", "second"):
        with pytest.raises(SystemExit), step("train", RECIPE, DATE, str(tmp_path)):
            raise InputError(message)
    assert termination_log.read_text() == "first\n"


def test_another_failure_passes_through_untold(
    tmp_path: Path, termination_log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), step("train", RECIPE, DATE, str(tmp_path)):
        raise ZeroDivisionError
    assert termination_log.read_text() == ""
    events = [StepEvent.from_line(line) for line in capfd.readouterr().err.splitlines()]
    assert [event.state for event in events if event] == ["started", "failed"]


def test_an_event_survives_the_prefix_of_a_log() -> None:
    event = StepEvent(step="a", part="b", state="finished", started_at_s=1.0, duration_s=2.0, peak_rss_mib=3.0)
    assert StepEvent.from_line(f"    {event.to_line()}") == event
    assert StepEvent.from_line(json.dumps({"step": "a"})) is None


def test_without_a_termination_log_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TERMINATION_LOG_VARIABLE, str(tmp_path / "absent"))
    with pytest.raises(SystemExit), step("train", RECIPE, DATE, str(tmp_path)):
        raise InputError("wrong")
    assert "absent" not in os.listdir(tmp_path)


STOPPED = """
import sys
from components.step import step
recipe, store = sys.argv[1:]
try:
    with step("train", recipe, "2024-01-09", store):
        print("working", flush=True)
        import time
        time.sleep(120)
finally:
    print("tidied up", flush=True)
"""


def test_a_step_that_is_stopped_tidies_up_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STOPPED, RECIPE, str(tmp_path)]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert out == "tidied up\n"
    events = [StepEvent.from_line(line) for line in err.splitlines()]
    assert [event.state for event in events if event] == ["started", "failed"]


def test_for_a_collector_every_line_is_an_object_with_the_run(
    tmp_path: Path, termination_log: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(logs.FORMAT_VARIABLE, "json")
    monkeypatch.setattr(logs, "take_over", lambda: None)  # of this process
    with pytest.raises(SystemExit), step("prepare_day", RECIPE, DATE, str(tmp_path), part="2024-01-02") as run:
        raise InputError("wrong")
    records = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [record["message"] for record in records] == [
        "prepare_day 2024-01-02: started",
        "error: wrong",
        "prepare_day 2024-01-02: failed",
    ]
    assert [record["level"] for record in records] == ["info", "error", "error"]
    assert {record["run"] for record in records} == {run.folder.name}
    assert {"state", "duration_s", "peak_rss_mib", "part", "time"} <= records[2].keys()
