"""`data import` with a mapping, as a newcomer types it, from files to a log that a retrain takes."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from pipelines.log_folder import make_log
from pipelines.recipes import find_recipe
from trainer.errors import InputError
from trainer.storage.publishing import read_json
from trainer.windows.preparation import prepare_day

EXAMPLES = Path(__file__).parents[2] / "docs" / "import"
MAPPING, VISITS = EXAMPLES / "visits.yaml", EXAMPLES / "visits.csv"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def import_visits(out: Path, *more: object, mapping: Path = MAPPING, sources: Sequence[object] = (VISITS,)) -> int:
    return run("data", "import", "--mapping", mapping, "--from", *sources, "--out", out, *more)


def test_the_walk_through_leads_to_a_prepared_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "visits"
    assert import_visits(out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "8 days, 2024-03-28 to 2024-04-04 (UTC), 672 rows: save 12.2%, click 25.9%, hide 1.8%"
    assert lines[-3:] == [
        f"next: thawline data check --recipe {out}/recipe.yaml",
        f"      thawline retrain --recipe {out}/recipe.yaml --date 2024-04-05",
        f"log: {out}",
    ]
    assert not [path for path in tmp_path.iterdir() if path != out]
    assert run("data", "check", "--recipe", out / "recipe.yaml") == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"sound: {out}, 8 days"
    recipe = find_recipe(str(out / "recipe.yaml"))
    assert (recipe.name, recipe.window.num_days, recipe.backbone.num_days) == ("visits", 3, 4)
    assert recipe.logs.labels == ("save", "click", "hide")
    assert recipe.model.history_length == 20
    folder = prepare_day(recipe, date(2024, 3, 30), str(tmp_path / "store"))
    assert read_json(f"{folder}/partition.json", "")["num_rows"] > 0


def test_the_summary_is_json_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = EXAMPLES / "events.jsonl"
    assert import_visits(tmp_path / "log", "--json", mapping=EXAMPLES / "events.yaml", sources=[events]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["recipe"] == str(tmp_path / "log" / "recipe.yaml")
    assert content["num_joined"] == content["num_engagements"] == 73
    assert content["num_rows"] == sum(content["days"].values()) == 180


def test_dropped_rows_and_gaps_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = VISITS.read_text().splitlines()
    kept = [line for line in lines if "2024-03-30" not in line and "2024-03-31" not in line]
    (tmp_path / "a.csv").write_text("\n".join([*kept, "v1,,lamp,2024-04-03 00:00:00,1,,1,1"]) + "\n")
    (tmp_path / "m.yaml").write_text(MAPPING.read_text() + "on_bad_row: drop\n")
    assert import_visits(tmp_path / "log", mapping=tmp_path / "m.yaml", sources=[tmp_path / "*.csv"]) == 0
    told = capsys.readouterr().out
    assert "left out 1 records:" in told
    assert f"1 as {tmp_path}/a.csv, line {len(kept) + 1}: user_id: is null" in told
    assert "days without rows: 2024-03-30; " in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "name either a known data set (complete-journey) or --mapping FILE"),
        (("complete-journey", "--mapping", MAPPING), "name either"),
        (("complete-journey", "--from", VISITS), "belong to --mapping"),
        (("--mapping", MAPPING), "name them with --from"),
        (("--mapping", EXAMPLES / "nope.yaml", "--from", VISITS), "no such file"),
        (("--mapping", MAPPING, "--from", EXAMPLES / "*.tsv"), "names no file"),
        (("--mapping", MAPPING, "--from", EXAMPLES / "events.jsonl"), "has no column 'visit'"),
        (("--mapping", MAPPING, "--from", VISITS, "--engagements", VISITS), "has no engagements.source"),
        (("--mapping", MAPPING, "--from", VISITS, "--out", "gs://bucket/log"), "a log is made in a local folder"),
        (("--mapping", MAPPING, "--from", VISITS, "--out", EXAMPLES), "is there already"),
        (("--mapping", MAPPING, "--from", VISITS, "--out", VISITS / "log"), "visits.csv"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], told: str
) -> None:
    assert run("data", "import", "--out", tmp_path / "log", *arguments) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("thawline: error: ")
    assert told in last
    assert not list(tmp_path.iterdir())


def test_a_bad_row_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(VISITS.read_text() + "v1,anna,lamp,noon,1,,1,1\n")
    assert import_visits(tmp_path / "log", sources=[tmp_path / "a.csv"]) == 2
    assert "a.csv, line 674: ts: 'noon' is no ISO time" in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_killed_import_leaves_no_log_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    lines = VISITS.read_text().splitlines(keepends=True)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(lines[0] + "".join(lines[1:]) * 600)
    command = [sys.executable, "-m", "pipelines.cli", "data", "import", "--mapping", str(MAPPING)]
    out, aside = tmp_path / "log", tmp_path / ".log.aside"
    process = subprocess.Popen(
        [*command, "--from", str(tmp_path / "in"), "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while not list(aside.rglob("*.arrow")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert aside.is_dir()
    assert not out.exists()
    assert import_visits(out) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "log"]
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in out.rglob("*.parquet")) == 672


def test_what_is_left_is_cleared_and_what_another_process_fills_is_not(tmp_path: Path) -> None:
    out, aside = tmp_path / "log", tmp_path / ".log.aside"
    (aside / "left").mkdir(parents=True)
    folder = os.open(aside, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with pytest.raises(InputError, match="another process fills it"):
        make_log(out, lambda aside: None)
    assert (aside / "left").is_dir()
    os.close(folder)

    def write(folder: Path) -> None:
        assert not list(folder.iterdir())
        (folder / "new").touch()

    make_log(out, write)
    assert [path.name for path in out.iterdir()] == ["new"]
    shutil.rmtree(out)

    def fail(folder: Path) -> None:
        (folder / "new").touch()
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"log: cannot be written \(No space left on device\)"):
        make_log(out, fail)
    assert not list(tmp_path.iterdir())


def test_files_may_lie_in_a_bucket(tmp_path: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    from trainer.storage.filesystem import filesystem_of

    lines = VISITS.read_text().splitlines(keepends=True)
    for name, part in (("in/1.csv", lines[1:300]), ("in/2.csv", lines[300:]), ("in/_SUCCESS", [])):
        system, path = filesystem_of(f"{bucket}/{name}")
        with system.open_output_stream(path) as stream:
            stream.write("".join([lines[0], *part] if part else []).encode())
    assert import_visits(tmp_path / "far", sources=[f"{bucket}/in/*.csv"]) == 0
    assert import_visits(tmp_path / "near") == 0
    rows: list[Any] = [
        [pq.ParquetFile(path).read() for path in sorted((tmp_path / place).rglob("*.parquet"))]
        for place in ("far", "near")
    ]
    assert rows[0] == rows[1]
    assert import_visits(tmp_path / "none", sources=[f"{bucket}/out/*.csv"]) == 2
    assert "names no file" in capsys.readouterr().err.splitlines()[-1]
