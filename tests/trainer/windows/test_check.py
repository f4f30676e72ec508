import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.trainer.windows.logs import DAY, logs_config, write_log
from trainer.errors import InputError
from trainer.storage.publishing import write_json
from trainer.windows import check
from trainer.windows.check import check_logs
from trainer.windows.importing.note import NOTE


def test_a_sound_log_is_summed_up_by_day(tmp_path: Path) -> None:
    for offset in range(3):
        write_log(tmp_path, DAY + timedelta(days=offset))
    report = check_logs(logs_config(tmp_path), DAY + timedelta(days=1))
    assert report.is_sound
    assert [summary.day for summary in report.days] == [DAY + timedelta(days=1), DAY + timedelta(days=2)]
    first = report.days[0]
    assert (first.num_rows, first.num_slates, first.num_duplicates) == (24, 6, 0)
    assert first.label_rates == {"save": 0.25, "click": 0.5}
    content = json.loads(json.dumps(report.to_json()))
    assert content["days"][0]["day"] == "2024-03-06"
    assert content["is_sound"] is True


def test_problems_of_all_days_are_listed_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, DAY, lambda columns: columns["pin_id"].__setitem__(2, -1))
    file = write_log(tmp_path, DAY + timedelta(days=1))
    file.write_bytes(b"PAR1")
    write_log(tmp_path, DAY + timedelta(days=3))
    report = check_logs(logs_config(tmp_path))
    assert not report.is_sound
    assert [summary.day for summary in report.days] == [DAY + timedelta(days=3)]
    negative, corrupt, gap = (problem.line for problem in report.problems)
    assert "column 'pin_id', row 2: -1 is negative" in negative
    assert corrupt.startswith(f"{file}: cannot be read as Parquet")
    assert "no logs for 2024-03-07" in gap
    monkeypatch.setattr(check, "MAX_PROBLEMS", 2)
    bounded = check_logs(logs_config(tmp_path))
    assert (len(bounded.problems), bounded.num_problems) == (2, 3)


def test_one_rule_is_one_problem_over_all_files_and_days(tmp_path: Path) -> None:
    def negative(columns: dict[str, list[object]]) -> None:
        columns["pin_id"][2:4] = [-1, -7]

    def shorter(columns: dict[str, list[object]]) -> None:
        del columns["click"]

    write_log(tmp_path, DAY, negative)
    write_log(tmp_path, DAY + timedelta(days=1))
    for offset in range(2, 5):
        write_log(tmp_path, DAY + timedelta(days=offset), negative if offset == 2 else shorter)
    report = check_logs(logs_config(tmp_path))
    values, missing = report.problems
    assert f"dt={DAY}/part-00000.parquet: column 'pin_id', row 2 and 3 more: -1 is negative; map it to 0" in values.line
    assert values.line.endswith("(in 2 files of 2 days)")
    assert (values.column, values.num_rows, values.num_files, values.num_days) == ("pin_id", 4, 2, 2)
    assert "column 'click' is missing; add it as bool (in 2 files of 2 days)" in missing.line
    assert (missing.column, missing.num_rows, missing.num_files, missing.key) == ("click", 0, 2, None)
    assert [day.day for day in report.days] == [DAY + timedelta(days=1)]
    assert report.to_json()["problems"][0]["num_rows"] == 4


def test_an_imported_log_names_the_key_to_change(tmp_path: Path) -> None:
    write_log(tmp_path, DAY, lambda columns: columns["position"].__setitem__(0, -1))
    write_json(tmp_path / NOTE, {"mapping": "mine.yaml", "keys": {"position": "position", "save": "labels.save"}})
    (problem,) = check_logs(logs_config(tmp_path)).problems
    assert problem.key == "position"
    assert problem.line.endswith("map it to 0 or more; it was imported by 'position' of mine.yaml")


def test_duplicates_are_counted(tmp_path: Path) -> None:
    def repeat(columns: dict[str, list[object]]) -> None:
        for values in columns.values():
            values.extend(values[:4])

    write_log(tmp_path, change=repeat)
    assert check_logs(logs_config(tmp_path)).days[0].num_duplicates == 4


def test_a_span_without_days_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no dt="):
        check_logs(logs_config(tmp_path))
    write_log(tmp_path)
    with pytest.raises(InputError, match="no day from 2025-01-01 to 2025-01-02; it holds 2024-03-05 to 2024-03-05"):
        check_logs(logs_config(tmp_path), DAY.replace(2025, 1, 1), DAY.replace(2025, 1, 2))
