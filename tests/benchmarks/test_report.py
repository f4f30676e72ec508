import json
from pathlib import Path

import pytest

from benchmarks import report


def test_a_package_that_is_not_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A GPU's checks run on plain torch."""
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(report, "_PACKAGES", ("pytest", "no-such-package"))
    report.publish("tiny", {"answer": 42})
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed == json.loads((tmp_path / "results" / "tiny.json").read_text())
    assert printed["answer"] == 42
    assert printed["versions"].keys() == {"python", "pytest"}


def test_a_quick_run_leaves_the_full_run_s_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    report.publish("tiny", {"answer": 42})
    report.publish("tiny", {"answer": 7}, quick=True)
    answers = {path.name: json.loads(path.read_text())["answer"] for path in tmp_path.iterdir()}
    assert answers == {"tiny.json": 42, "tiny_quick.json": 7}
    assert report.result_path("tiny.png", quick=True).name == "tiny_quick.png"
