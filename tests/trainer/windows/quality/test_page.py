import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.trainer.windows.quality.days import RECIPE, Columns, days_of
from trainer.windows.quality.drawing import day_bars
from trainer.windows.quality.page import CHECKS, page_of
from trainer.windows.quality.report import judge

VOID = {"meta", "br", "img"}


class Balanced(HTMLParser):
    """Fails where a tag is closed that is not the open one."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def oddities(columns: Columns) -> None:
    columns["user_features"][:, 1] *= 3.0
    columns["save"][:] = False


def written(**changes: Any) -> dict[str, Any]:
    report = judge(replace(RECIPE, **changes), days_of(change=oddities))
    content: dict[str, Any] = json.loads(json.dumps(report.to_json(), allow_nan=False))
    return content


@pytest.fixture(scope="module")
def odd() -> dict[str, Any]:
    return written(name="<b>feed")


def test_the_page_is_one_file_that_fetches_nothing(odd: dict[str, Any]) -> None:
    page = page_of(odd)
    assert "<b>feed" not in page and "&lt;b&gt;feed" in page
    assert not re.search(r"<script|https?://|<link|@import|url\(", page)
    assert "default-src 'none'" in page
    balanced = Balanced()
    balanced.feed(page)
    assert not balanced.open
    assert page_of(odd) == page


def test_every_chart_is_sound_and_told_in_words(odd: dict[str, Any]) -> None:
    page = page_of(odd)
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    # Three by day (nothing was dropped), the hours, features of two days, and the feature that drifted.
    assert len(charts) == 3 + 1 + 2 + 1
    assert page.count("<p>None on any day.</p>") == 2
    names = []
    for chart in charts:
        root = ElementTree.fromstring(chart)
        assert root.get("role") == "img"
        title, told = root[0], root[1]
        assert (title.tag, told.tag) == ("title", "desc")
        assert root.get("aria-labelledby") == f"{title.get('id')} {told.get('id')}"
        assert title.text and told.text
        names.append(title.get("id"))
        numbers = [float(text) for text in re.findall(r' (?:x|y|width|height)="([^"]*)"', chart)]
        assert all(-1 <= number <= 2000 for number in numbers)
    assert len(set(names)) == len(names)
    assert page.count("<details>") >= 5


def test_findings_come_first_with_what_to_do(odd: dict[str, Any]) -> None:
    page = page_of(odd)
    assert odd["verdict"] == "warn" and odd["num_breaches"] == 3
    first, _, rest = page.partition("<h2>Day by day</h2>")
    assert "Verdict: warn." in first and rest
    for check in ("label_rate", "drift", "range"):
        assert f'<td class="text">{CHECKS[check][0]}</td>' in first
        assert CHECKS[check][1] in first
    assert "0.00% of rows have save" in first
    assert "<h3>user_features[1] on 2024-03-09</h3>" in page


def test_a_window_in_order_says_so() -> None:
    page = page_of(json.loads(json.dumps(judge(RECIPE, days_of()).to_json())))
    assert "Verdict: ok." in page and "Nothing is out of the ordinary." in page
    assert "What is odd" not in page


def test_a_short_window_says_what_was_not_checked() -> None:
    page = page_of(json.loads(json.dumps(judge(RECIPE, days_of()[:2]).to_json())))
    assert "Not checked: 2024-03-01, 2024-03-02, with too few days before." in page


def test_every_check_has_a_name_and_a_remedy() -> None:
    found = {finding.check for finding in judge(RECIPE, days_of()).findings}
    assert found == set(CHECKS)


def test_days_without_a_value_have_no_bar() -> None:
    chart = day_bars(
        "New pins", ["2024-03-01", "2024-03-02"], [None, 0.25], lambda share: f"{share:.0%}", {"2024-03-02"}
    )
    root = ElementTree.fromstring(chart)
    assert len(root.findall("rect")) == 1
    assert root[1].text == "One bar a day: 2024-03-02 25%."
