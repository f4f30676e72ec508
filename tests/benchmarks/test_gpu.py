"""The checks that need a GPU, as far as none is needed."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu, report


def test_without_a_gpu_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    with pytest.raises(SystemExit) as stopped:
        gpu.main()
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def figures(**changes: Any) -> dict[str, Any]:
    right = {
        "order": {"sync": True, "semi": True},
        "overlap": {"overlapped_share": 0.9},
        "small_table_auto_vs_best": 1.05,
        "fitted_crossover": {"min_ids": 256},
    }
    return right | changes


def test_what_holds_is_no_failure() -> None:
    assert not gpu.failures(figures())


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"order": {"sync": True, "semi": False}}, "semi"),
        ({"overlap": {"overlapped_share": 0.0}}, "overlap"),
        ({"small_table_auto_vs_best": 1.06}, "min_ids"),
    ],
)
def test_a_failure_says_what_is_wrong(wrong: dict[str, Any], names: str) -> None:
    (line,) = gpu.failures(figures(**wrong))
    assert names in line
