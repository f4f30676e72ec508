"""The tables of ``docs/results.md`` and of the README, written from the results of the benchmarks.

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->``; everything else on the page is prose for people.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS
from benchmarks.strategies_summary import percent

_REPOSITORY = Path(__file__).parents[1]
PAGES = (_REPOSITORY / "docs" / "results.md", _REPOSITORY / "README.md")
_TABLE = re.compile(r"(?<=<!-- table )(?P<name>[\w .*@+-]+)(?P<close> -->\n)(?P<body>.*?)(?=<!-- end -->)", re.DOTALL)
_THAW_CURVE = {"cotrain": 0.0, "delayed@0.5": 0.5, "delayed": 1.0, "delayed@1.5": 1.5, "frozen": 2.0}

_SHORT = {
    "delayed": "in the last of two passes",
    "delayed*3": "in the last of three passes",
    "frozen": "never, two passes",
    "cotrain": "in both of two passes",
    "adapt_then_freeze": "in the first of two passes",
}

Entry = Mapping[str, Any]


def rewrite(page: str, figures: Mapping[str, Any]) -> str:
    """The page with its tables written anew.

    Args:
        page: Markdown.
        figures: What `benchmarks.strategies` published.

    Raises:
        KeyError: The page asks for a table that there is not.
    """
    return _TABLE.sub(lambda found: f"{found['name']}{found['close']}{_table(found['name'], figures)}", page)


def _table(name: str, figures: Mapping[str, Any]) -> str:
    kind, _, group = name.partition(" ")
    head, row, part = TABLES[kind]
    entries = [entry for entry in figures[part] if not group or group == _group(entry)]
    if kind == "short":
        entries = [entry for entry in entries if entry["arm"] in _SHORT]
    if kind == "curve":
        entries = sorted(_on_curve(entries), key=lambda entry: _THAW_CURVE[entry["arm"]])
    return "\n".join(_markdown(head, [row(entry) for entry in entries])) + "\n"


def _group(entry: Entry) -> str:
    return f"{entry['dataset']} {entry['window_days']}"


def _on_curve(entries: Sequence[Entry]) -> Iterator[Entry]:
    return (entry for entry in entries if entry["arm"] in _THAW_CURVE)


def _short_row(entry: Entry) -> list[str]:
    lifts = [percent(entry["auc_lift"]), percent(entry["save_hit3_lift"])]
    return [f"`{entry['arm']}`", _SHORT[entry["arm"]], *lifts, str(entry["n"])]


def _arm_row(entry: Entry) -> list[str]:
    lifts = [percent(entry["auc_lift"]), percent(entry["save_hit3_lift"])]
    cost = [f"{entry['train_s']:.1f}", f"{entry['num_row_gradients'] / 1e6:.2f}"]
    return [f"`{entry['arm']}`", *lifts, *cost, str(entry["n"])]


def _versus_row(entry: Entry) -> list[str]:
    lifts = [percent(entry["auc_lift"]), percent(entry["save_hit3_lift"])]
    cost = [f"{entry['time_ratio']:.2f}", f"{entry['row_gradients_ratio']:.2f}"]
    return [_group(entry), f"`{entry['own']}`", f"`{entry['remedy']}`", *lifts, *cost, str(entry["n"])]


def _curve_row(entry: Entry) -> list[str]:
    thaw = _THAW_CURVE[entry["arm"]]
    return [f"{thaw:.1f}", f"`{entry['arm']}`", percent(entry["auc_lift"]), percent(entry["save_hit3_lift"])]


def _vlm_row(entry: Entry) -> list[str]:
    lifts = [percent(entry[name]) for name in ("auc_lift", "save_hit3_lift", "auc_lift_new_pins")]
    return [f"`{entry['arm']}`", *lifts, str(entry["n"])]


def _canary_row(entry: Entry) -> list[str]:
    readings = [f"{entry['least_cotrain']:.3f}", f"{entry['most_delayed']:.3f}"]
    jumps = [f"{entry['cotrain_loss_jump']:+.1%}", f"{entry['delayed_loss_jump']:+.1%}"]
    return [_group(entry), *readings, f"{entry['num_separated']} of {entry['n']}", *jumps]


def _guard_row(entry: Entry) -> list[str]:
    saved = entry["auc_saved_by_guard"]
    interval = f"{saved['mean']:+.4f} [{saved['low']:+.4f}, {saved['high']:+.4f}]"
    share = "nothing lost" if entry["saved_share"] is None else f"{entry['saved_share']:.0%}"
    refrozen = f"{entry['num_refrozen']} of {entry['n']}"
    return [_group(entry), refrozen, f"{entry['auc_lost_by_cotrain']:.4f}", interval, share]


TABLES: dict[str, tuple[list[str], Callable[[Entry], list[str]], str]] = {
    "arms": (["arm", "AUC", "HIT@3-save", "time, s", "row gradients, M", "n"], _arm_row, "results"),
    "short": (["arm", "tables adapt", "AUC", "HIT@3-save", "n"], _short_row, "results"),
    "versus": (
        ["group", "ours", "remedy", "AUC", "HIT@3-save", "time", "row gradients", "n"],
        _versus_row,
        "versus",
    ),
    "curve": (["thaw point, epochs", "arm", "AUC", "HIT@3-save"], _curve_row, "results"),
    "vlm": (["arm", "AUC", "HIT@3-save", "AUC on new pins", "n"], _vlm_row, "results"),
    "encoder": (["arm", "AUC", "HIT@3-save", "AUC on new pins", "n"], _vlm_row, "encoder"),
    "canary": (
        ["group", "least of `cotrain`", "most of `delayed`", "separated", "loss jump `cotrain`", "`delayed`"],
        _canary_row,
        "canary",
    ),
    "guard": (["group", "re-frozen", "AUC lost by `cotrain`", "saved by the guard", "share"], _guard_row, "guard"),
}
"""Kinds of tables: their columns, what makes a row of an entry, and which figures they show."""


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"


def write_pages() -> None:
    """Writes the tables of both pages from the benchmark's results."""
    figures = json.loads((RESULTS / "strategies.json").read_text())
    for page in PAGES:
        page.write_text(rewrite(page.read_text(), figures))
