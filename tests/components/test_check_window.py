from datetime import date
from pathlib import Path

import pytest

from components.check_window.checking import check
from components.run import Run
from pipelines.recipes import synthetic
from trainer.errors import InputError
from trainer.windows.manifest import assemble_window, window_days
from trainer.windows.preparation import prepare_day


def run_of(log: Path, store: Path, **settings: str) -> Run:
    fields = {"logs.uri": str(log), "window.num_days": "5"} | {f"quality.{key}": text for key, text in settings.items()}
    return Run(recipe=synthetic().override(fields), date=date(2024, 1, 10), store=str(store))


def window_of(run: Run) -> str:
    days = window_days(run.date, run.recipe.window.num_days)
    return assemble_window([prepare_day(run.recipe, day, run.store) for day in days], run.store, has_heldout=True)


def test_a_warning_is_said_and_the_run_goes_on(
    tiny_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tiny_log, tmp_path, max_mean_shift="0.000001", max_z="0.000001")
    assert check(run, window_of(run)) == "warn"
    assert "data of 2024-01-0" in capsys.readouterr().err
    assert (run.folder / "quality.json").is_file()
    assert "Data checks of synthetic" in (run.folder / "quality.html").read_text()


def test_a_stop_leaves_its_page(tiny_log: Path, tmp_path: Path) -> None:
    run = run_of(tiny_log, tmp_path, max_mean_shift="0.000001", max_z="0.000001", on_breach="stop")
    with pytest.raises(InputError, match=r"^data of 2024-01-0\d: .*more finding.*see .*quality\.html"):
        check(run, window_of(run))
    assert "Verdict: stop." in (run.folder / "quality.html").read_text()
