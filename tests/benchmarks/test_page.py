"""The page of results shows the committed figures, and nothing else in its tables."""

import json
from pathlib import Path

import pytest

from benchmarks.page import PAGES, rewrite
from benchmarks.report import RESULTS

FIGURES = {
    "results": [
        {
            "dataset": "synthetic",
            "window_days": 20,
            "arm": arm,
            "n": 5,
            "auc_lift": {"mean": lift, "low": lift - 0.01, "high": lift + 0.01},
            "save_hit3_lift": {"mean": 0.0, "low": -0.01, "high": 0.01},
            "train_s": 12.34,
            "num_row_gradients": 1_500_000,
        }
        for arm, lift in (("frozen", -0.02), ("delayed", 0.03), ("meda", 0.01))
    ]
}


def test_a_table_is_written_between_its_marks_and_prose_stays() -> None:
    page = "before\n<!-- table arms synthetic 20 -->\nold\n<!-- end -->\nafter\n"
    written = rewrite(page, FIGURES)
    assert written.startswith("before\n<!-- table arms synthetic 20 -->\n| arm |")
    assert written.endswith("<!-- end -->\nafter\n")
    assert "| `delayed` | +3.00% [+2.00%, +4.00%] | +0.00% [-1.00%, +1.00%] | 12.3 | 1.50 | 5 |" in written
    assert "old" not in written
    assert rewrite(written, FIGURES) == written


def test_the_thaw_curve_is_in_the_order_of_thaw_points() -> None:
    written = rewrite("<!-- table curve synthetic 20 -->\n<!-- end -->\n", FIGURES)
    assert [line.split(" | ")[0] for line in written.splitlines()[3:-1]] == ["| 1.0", "| 2.0"]


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(KeyError, match="nothing"):
        rewrite("<!-- table nothing -->\n<!-- end -->\n", FIGURES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_committed_results(page: Path) -> None:
    figures = json.loads((RESULTS / "strategies.json").read_text())
    assert "<!-- table " in page.read_text()
    assert rewrite(page.read_text(), figures) == page.read_text()
