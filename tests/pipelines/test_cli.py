"""The command as a user mistypes it: one line, exit code 2, nothing half-written."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from tests.conftest import Thawline

RETRAIN = ("retrain", "--recipe", "synthetic")
BROKEN_DAY = "dt=2024-01-07"


def assert_told(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """One line that holds `parts`, as the last of stderr; code 2; no traceback."""
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert [line for line in lines if line.startswith("thawline: error: ")] == lines[-1:], done.stderr
    for part in parts:
        assert part in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "VERB"),
        (("nope",), "nope"),
        (("retrain", "--recipe", "nope"), "complete_journey, synthetic"),
        ((*RETRAIN, "--date", "2024-02-30"), "YYYY-MM-DD"),
        ((*RETRAIN, "--window-days", "0"), "window.num_days"),
        ((*RETRAIN, "--window-days", "many"), "window.num_days"),
        ((*RETRAIN, "--set", "thaw.arm=nope"), "thaw.arm"),
        ((*RETRAIN, "--set", "nope=1"), "no field 'nope'"),
        ((*RETRAIN, "--set", "nope"), "--set KEY=VALUE"),
        ((*RETRAIN, "--runner", "nope"), "--runner"),
        (("data", "check", "--set", "logs.uri=/nowhere/at/all"), "/nowhere/at/all"),
        (("data", "import", "nope", "--out", "x"), "complete-journey"),
        (("data", "import", "--out", "x"), "--mapping"),
        (("data", "synthesize", "--out", "x", "--set", "nope=1"), "num_days"),
        (("data", "synthesize", "--out", "x", "--set", "num_days=few"), "num_days=few"),
        (("compile",), "--out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistyped_command_is_told(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("thawline: error: ")
    assert told in line
    assert captured.out == ""


def test_the_command_exits_with_its_code(thawline: Thawline) -> None:
    done = thawline("retrain", "--recipe", "nope")
    assert_told(done, "complete_journey, synthetic")
    assert len(done.stderr.splitlines()) == 1


def without_a_column(day: Path) -> None:
    path = day / "part-00000.parquet"
    pq.write_table(pq.read_table(path).drop_columns("pin_id"), path)


def with_a_wrong_type(day: Path) -> None:
    path = day / "part-00000.parquet"
    table = pq.read_table(path)
    index = table.column_names.index("save")
    pq.write_table(table.set_column(index, "save", pc.cast(pc.cast(table["save"], pa.int8()), pa.string())), path)


def with_an_id_out_of_range(day: Path) -> None:
    path = day / "part-00000.parquet"
    table = pq.read_table(path)
    index = table.column_names.index("user_id")
    pq.write_table(table.set_column(index, "user_id", pa.array([-5] * table.num_rows, pa.int64())), path)


def cut_short(day: Path) -> None:
    path = day / "part-00000.parquet"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(day: Path) -> None:
    path = day / "part-00000.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)


@pytest.mark.parametrize(
    ("break_day", "told"),
    [
        (without_a_column, "pin_id"),
        (with_a_wrong_type, "save"),
        (with_an_id_out_of_range, "user_id"),
        (cut_short, "part-00000.parquet"),
        (emptied, BROKEN_DAY),
        (shutil.rmtree, "2024-01-07"),
    ],
    ids=["missing column", "wrong type", "id out of range", "corrupt file", "empty day", "no logs"],
)
def test_a_broken_day_is_told_and_leaves_nothing(
    thawline: Thawline,
    capsys: pytest.CaptureFixture[str],
    tiny_log: Path,
    tmp_path: Path,
    break_day: Callable[[Path], None],
    told: str,
) -> None:
    log, store = tmp_path / "log", tmp_path / "store"
    shutil.copytree(tiny_log, log)
    break_day(log / BROKEN_DAY)
    logs = ("--set", f"logs.uri={log}")
    assert main(["data", "check", "--recipe", "synthetic", *logs]) == 2
    assert "2024-01-07" in capsys.readouterr().err
    done = thawline(*RETRAIN, *logs, "--date", "2024-01-09", "--window-days", "1", "--store", store)
    assert_told(done, told)
    assert not list(store.rglob("*.aside"))
    assert not (store / "partitions" / BROKEN_DAY).exists() or not any((store / "partitions" / BROKEN_DAY).iterdir())
    assert not list(store.rglob("summary.json"))
    assert not (store / "windows").exists()
    (end,) = [json.loads(path.read_text()) for path in store.glob("runs/*/end.json")]
    assert (end["status"], end["is_mistake"]) == ("failed", True)
    assert end["failed_step"].split()[0] in ("prepare_day", "plan_window")
    assert told in end["error"]


def test_a_sound_log_is_called_sound(capsys: pytest.CaptureFixture[str], tiny_log: Path) -> None:
    arguments = ["data", "check", "--recipe", "synthetic", "--set", f"logs.uri={tiny_log}"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"sound: {tiny_log}, 9 days"
    assert main([*arguments, "--json", "--from", "2024-01-02", "--to", "2024-01-03"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [day["day"] for day in report["days"]] == ["2024-01-02", "2024-01-03"]
    assert report["is_sound"] is True


def test_a_log_is_drawn_whole_and_never_over_another(thawline: Thawline, tmp_path: Path) -> None:
    settings = ("num_days=2", "num_users=20", "num_pins=60", "rows_per_day=40", "with_images=false", "with_text=false")
    arguments = ["data", "synthesize", "--out", tmp_path / "log", *(f"--set={setting}" for setting in settings)]
    done = thawline(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"log: {tmp_path / 'log'}"
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == ["dt=2024-01-01", "dt=2024-01-02"]
    assert_told(thawline(*arguments), "is there already")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_store_that_cannot_be_written_is_told(thawline: Thawline, tiny_log: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = thawline(*RETRAIN, "--set", f"logs.uri={tiny_log}", "--date", "2024-01-10", "--store", tmp_path / "file")
    assert_told(done, f"{tmp_path / 'file'}: cannot be written (Not a directory)")
