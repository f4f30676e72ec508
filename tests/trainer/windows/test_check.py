import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.trainer.windows.logs import DAY, logs_config, write_log
from trainer.errors import InputError
from trainer.windows import check
from trainer.windows.check import check_logs


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
    negative, corrupt, gap = report.problems
    assert "column 'pin_id', row 2: -1 is negative" in negative
    assert corrupt.startswith(f"{file}: cannot be read as Parquet")
    assert "no logs for 2024-03-07" in gap
    monkeypatch.setattr(check, "MAX_PROBLEMS", 2)
    bounded = check_logs(logs_config(tmp_path))
    assert (len(bounded.problems), bounded.num_problems) == (2, 3)


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
