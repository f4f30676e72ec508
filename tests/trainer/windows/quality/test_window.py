"""From raw logs to a verdict: what preparation leaves is all that the checks read."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.trainer.windows.quality.days import FIRST_DAY, LOGS, RECIPE, Columns, columns_of, table_of
from trainer.errors import InputError
from trainer.recipe import QualityConfig, Recipe, WindowConfig
from trainer.windows.logs import write_day
from trainer.windows.manifest import assemble_window
from trainer.windows.preparation import prepare_day
from trainer.windows.quality.record import read_record, refuse_stop, write_record
from trainer.windows.quality.window import check_window

NUM_DAYS = 5
SETTINGS = QualityConfig(max_psi=0.5, max_mean_shift=1.0)


def lose_saves(columns: Columns) -> None:
    columns["save"][len(columns["save"]) // 4 :] = False


def window_of(folder: Path, change: Callable[[Columns], None] | None = None) -> tuple[Recipe, str]:
    logs = replace(LOGS, uri=str(folder / "logs"))
    recipe = replace(RECIPE, logs=logs, quality=SETTINGS, window=WindowConfig(num_days=NUM_DAYS - 1))
    days = [FIRST_DAY + timedelta(days=number) for number in range(NUM_DAYS)]
    partitions = []
    for number, day in enumerate(days):
        columns = columns_of(0, number)
        if change and number == NUM_DAYS - 1:
            change(columns)
        write_day(logs.uri, day, table_of(columns))
        partitions.append(prepare_day(recipe, day, str(folder / "store")))
    return recipe, assemble_window(partitions, str(folder / "store"), has_heldout=True)


def test_a_window_is_judged_by_what_preparation_left(tmp_path: Path) -> None:
    recipe, window = window_of(tmp_path, lose_saves)
    for part in tmp_path.glob("store/partitions/*/*/*.parquet"):
        part.unlink()  # no row is read
    report = check_window(recipe, window)
    assert [(finding.check, finding.day) for finding in report.breaches] == [
        ("label_rate", FIRST_DAY + timedelta(days=NUM_DAYS - 1))
    ]
    assert [day["rows"] for day in report.days] == [len(columns_of(0, number)["save"]) for number in range(NUM_DAYS)]
    assert not any(day["duplicate_share"] for day in report.days)


def test_an_ordinary_window_passes(tmp_path: Path) -> None:
    recipe, window = window_of(tmp_path)
    assert not check_window(recipe, window).breaches


def test_the_record_holds_page_and_json(tmp_path: Path) -> None:
    recipe, window = window_of(tmp_path, lose_saves)
    report = check_window(recipe, window)
    page = write_record(report, tmp_path / "run")
    record = read_record(tmp_path / "run")
    assert record.to_summary() == {"verdict": "warn", "findings": 1, "page": str(page)}
    assert set(record.files) == {"quality.json", "quality.html"}
    assert json.loads(record.files["quality.json"]) == json.loads(json.dumps(report.to_json()))
    assert "Verdict: warn." in record.files["quality.html"] == page.read_text()
    refuse_stop(report, page)


def test_a_stop_names_the_finding_the_page_and_the_way_out(tmp_path: Path) -> None:
    recipe, window = window_of(tmp_path, lose_saves)
    report = check_window(replace(recipe, quality=replace(SETTINGS, on_breach="stop")), window)
    with pytest.raises(InputError) as refused:
        refuse_stop(report, tmp_path / "quality.html")
    line = str(refused.value)
    assert "\n" not in line
    assert line.startswith("data of 2024-03-05: ")
    assert "of rows have save, usually" in line
    assert f"see {tmp_path / 'quality.html'}" in line
    assert "quality.on_breach=warn" in line


def test_a_day_without_a_profile_is_refused(tmp_path: Path) -> None:
    recipe, window = window_of(tmp_path)
    facts = next(tmp_path.glob("store/partitions/dt=2024-03-03/*/partition.json"))
    content = json.loads(facts.read_text())
    facts.write_text(json.dumps({**content, "profile": {**content["profile"], "profile_version": 0}}))
    with pytest.raises(InputError, match=r"dt=2024-03-03.*has no profile of version \d+; remove that folder"):
        check_window(recipe, window)


def test_a_run_without_checks_has_no_record(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"quality\.json: cannot be read .*start the run again"):
        read_record(tmp_path)
