"""The page of a comparison: one HTML file that fetches nothing and runs nothing."""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from trainer.registry.comparison_plots import DIMENSIONS
from trainer.storage.publishing import file_aside

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto;
  max-width: 72rem; padding: 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .5rem; }
p, li { max-width: 52rem; } .facts { color: #444; margin: 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; }
caption { text-align: left; color: #444; padding-bottom: .4rem; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap;
  vertical-align: top; }
th { background: #f4f4f4; vertical-align: bottom; } th.text { text-align: left; }
th[scope=row] { text-align: left; vertical-align: top; } .scroll { margin-top: 1rem; }
th small { display: block; font-weight: normal; color: #444; } td small { display: block; color: #555; }
.better { color: #00573d; font-weight: 600; } .worse { color: #9c3000; font-weight: 600; }
figure { margin: 0; } img { max-width: 100%; height: auto; border: 1px solid #e3e3e3; }
figcaption { color: #444; font-size: .92rem; max-width: 52rem; } summary { cursor: pointer; }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def write_page(comparison: Mapping[str, Any], figures: Mapping[str, Path], path: Path) -> None:
    """Writes the report for people.

    Args:
        comparison: What ``comparison.json`` holds.
        figures: PNGs by name: ``forest``, ``curves``, ``slices``; they become part of the file.
        path: HTML to write.
    """
    title = f"Arms of {comparison['recipe']}, {comparison['date']}"
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            *_facts(comparison),
            *_outcome(comparison),
            *_lifts(comparison, figures["forest"]),
            *_curves(figures["curves"]),
            *_slices(comparison, figures["slices"]),
            *_method(comparison),
        ]
    )
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )
    with file_aside(path) as aside:
        aside.write_text(page, encoding="utf-8")


def as_percent(interval: Mapping[str, float | None]) -> str:
    """A lift as text, ``+0.23% [+0.07, +0.39]``; undefined numbers are n/a."""
    point, low, high = (
        "n/a" if value is None else f"{100 * value:+.2f}"
        for value in (interval[end] for end in ("point", "low", "high"))
    )
    return f"{point}{'' if point == 'n/a' else '%'} [{low}, {high}]"


def verdict(interval: Mapping[str, float | None]) -> str:
    """What an interval of a lift says: ``better``, ``worse`` or ``not told apart``."""
    low, high = interval["low"], interval["high"]
    if low is not None and low > 0:
        return "better"
    return "worse" if high is not None and high < 0 else "not told apart"


def _facts(comparison: Mapping[str, Any]) -> list[str]:
    heldout, seeds = comparison["heldout"], comparison["seeds"]
    windows = "; ".join(
        f"{window['days']} days, {window['first_day']} to {window['last_day']}, {window['rows']:,} rows"
        for window in comparison["windows"]
    )
    return [
        f'<p class="facts">Held out: {heldout["day"]}, {heldout["rows"]:,} impressions in {heldout["slates"]:,} slates '
        f"of {heldout['users']:,} users, {heldout['saves']:,} saves.</p>",
        f'<p class="facts">Trained on: {escape(windows)}.</p>',
        f'<p class="facts">{len(seeds)} seed{"s" if len(seeds) > 1 else ""} an arm ({", ".join(map(str, seeds))}); '
        f"backbone {escape(comparison['backbone']['model'])} version {escape(comparison['backbone']['version'])}; "
        f"MLflow run {escape(comparison['mlflow']['run_id'])}.</p>",
    ]


def _outcome(comparison: Mapping[str, Any]) -> list[str]:
    words = {
        "better": '<span class="better">ranks better</span> than',
        "worse": '<span class="worse">ranks worse</span> than',
        "not told apart": "is not told apart from",
    }
    return [
        "<h2>What came out</h2>",
        "<ul>",
        *(
            f"<li><strong>{escape(entry['arm'])}</strong>, {entry['window_days']} days: "
            f"{words[verdict(entry['lift']['save_auc'])]} {comparison['baseline']} on this day, AUC "
            f"{as_percent(entry['lift']['save_auc'])}{_range_of_seeds(entry)}.</li>"
            for entry in comparison["arms"]
            if entry["lift"]
        ),
        "</ul>",
    ]


def _range_of_seeds(entry: Mapping[str, Any]) -> str:
    """How far apart the seeds are, which the interval does not say."""
    lifts = [seed["lift"]["save_auc"] for seed in entry["seeds"] if seed["lift"]["save_auc"] is not None]
    return f"; its seeds from {min(lifts):+.2%} to {max(lifts):+.2%}" if len(lifts) > 1 else ""


def _lifts(comparison: Mapping[str, Any], forest: Path) -> list[str]:
    confidence = f"{comparison['confidence']:.0%}"
    return [
        "<h2>Lifts</h2>",
        *_figure(
            forest,
            f"Forest plot: AUC lift and HIT@{comparison['hit_k']}-save lift of each arm against "
            f"{comparison['baseline']}, with {confidence} intervals; the numbers are in the table below.",
            f"A mark is the lift, averaged over seeds, with its {confidence} interval; a tick below it is one seed.",
        ),
        *_arm_tables(comparison),
    ]


def _arm_tables(comparison: Mapping[str, Any]) -> list[str]:
    hit = f"HIT@{comparison['hit_k']}-save"
    judged = [
        ("Window", "days"),
        ("AUC lift", "% [interval]"),
        (f"{hit} lift", "% [interval]"),
        ("AUC", "0 to 1"),
        (hit, "saves a slate"),
        ("Calibration", "predicted / observed"),
    ]
    took = [
        ("Window", "days"),
        ("Training time", "seconds, all passes"),
        ("Row gradients", "sent to the tables"),
        ("Self-influence", "% of loss, before the last pass"),
        ("Guard", "epoch after which it froze the tables"),
    ]
    names = [entry["arm"] for entry in comparison["arms"]]
    entries = comparison["arms"]
    return [
        *_table("On the held-out day, means over seeds", "Arm", judged, names, map(_judged_cells(comparison), entries)),
        *_table("What training took, means over seeds", "Arm", took, names, map(_took_cells, entries)),
    ]


def _judged_cells(comparison: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[str]]:
    hit = f"save_hit{comparison['hit_k']}"

    def cells(entry: Mapping[str, Any]) -> list[str]:
        points = {name: interval["point"] for name, interval in entry["metrics"].items()}
        return [
            str(entry["window_days"]),
            _lift_cell(entry, "save_auc"),
            _lift_cell(entry, hit),
            _number(points["save_auc"], ".4f"),
            _number(points[hit], ".4f"),
            _number(points["save_calibration"], ".3f"),
        ]

    return cells


def _took_cells(entry: Mapping[str, Any]) -> list[str]:
    return [
        str(entry["window_days"]),
        _number(entry["train_s"], ",.1f"),
        _number(entry["num_row_gradients"], ",d"),
        _number(100 * entry["self_influence"], ".1f"),
        _guard_note(entry),
    ]


def _lift_cell(entry: Mapping[str, Any], metric: str) -> str:
    if not entry["lift"]:
        return "baseline"
    said = verdict(entry["lift"][metric])
    text = as_percent(entry["lift"][metric])
    return text if said == "not told apart" else f'<span class="{said}">{text}<small>{said}</small></span>'


def _guard_note(entry: Mapping[str, Any]) -> str:
    notes = [f"seed {seed}: {epoch}" for seed, epoch in entry["refrozen_at"].items()]
    return "; ".join(notes) or "none"


def _curves(curves: Path) -> list[str]:
    return [
        "<h2>Curves by epoch</h2>",
        *_figure(
            curves,
            "By epoch for each arm and seed: training loss, AUC on the held-out day, and the canary's self-influence; "
            "vertical lines mark where tables thaw and where the guard froze them again.",
            "Dash-dotted verticals mark the thaw, dotted ones a refreeze by the guard; loss is dashed while tables are "
            "frozen. Self-influence is what the rows' own labels take off the loss of the examples that read them: a "
            "pass that begins with much of it teaches the network to read labels off the rows.",
        ),
    ]


def _slices(comparison: Mapping[str, Any], slices: Path) -> list[str]:
    hit = f"save_hit{comparison['hit_k']}"
    entries = comparison["slices"]
    heads = [
        ("Window", "days"),
        ("Rows", "held out"),
        ("Saves", "held out"),
        ("AUC lift", "% [interval]"),
        (f"HIT@{comparison['hit_k']}-save lift", "% [interval]"),
    ]
    rows = (
        [
            str(entry["window_days"]),
            f"{entry['rows']:,}",
            f"{entry['saves']:,}",
            _lift_cell(entry, "save_auc"),
            _lift_cell(entry, hit),
        ]
        for entry in entries
    )
    names = [f"{DIMENSIONS[entry['dimension']]}: {entry['slice']}; {entry['arm']}" for entry in entries]
    return [
        "<h2>Slices</h2>",
        *_figure(
            slices,
            "AUC lift of each arm within slices of the held-out rows: by how often the window showed the pin, by how "
            "often it showed the user, and by new or old pin; the numbers are in the table below.",
            "AUC is over pairs of rows within the slice. A pin is new when the window never showed it. A mark "
            "without a bar has too few users or saves for an interval.",
        ),
        "<details>",
        "<summary>Numbers by slice</summary>",
        *_table("Slices; HIT ranks whole slates and counts the slice's own saves", "Slice; arm", heads, names, rows),
        "</details>",
    ]


def _method(comparison: Mapping[str, Any]) -> list[str]:
    confidence, baseline = f"{comparison['confidence']:.0%}", escape(comparison["baseline"])
    return [
        "<h2>How to read it</h2>",
        "<ul>",
        f"<li>A lift is relative: an arm's metric over that of {baseline}, less one, both averaged over seeds.</li>",
        f"<li>The {confidence} intervals come from one paired bootstrap of the held-out day's users, the same "
        "resamples for all arms and seeds. They cover users like those of this day, for the models of these seeds; "
        "they do not cover other days, other seeds or other backbones.</li>",
        "<li>Each interval stands by itself: with many arms and slices, some will miss zero by chance.</li>",
        "<li>All cases start from one backbone. Seeds differ in initialisation, order and dropout.</li>",
        *(
            [
                "<li>The backbone ends before the longest window. A shorter window is its newest days: of the days "
                "between, that model saw none.</li>"
            ]
            if len(comparison["windows"]) > 1
            else []
        ),
        "<li>Times were taken while cases ran side by side; compare them with each other only.</li>",
        "</ul>",
    ]


def _figure(png: Path, alt: str, caption: str) -> list[str]:
    data = base64.b64encode(png.read_bytes()).decode()
    return [
        "<figure>",
        f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">',
        f"<figcaption>{escape(caption)}</figcaption>",
        "</figure>",
    ]


def _table(
    caption: str,
    first: str,
    heads: Sequence[tuple[str, str]],
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> list[str]:
    """A table whose cells are HTML already and whose row names are not."""
    head = f'<th scope="col" class="text">{escape(first)}</th>'
    head += "".join(f'<th scope="col">{escape(name)}<small>{escape(unit)}</small></th>' for name, unit in heads)
    return [
        '<div class="scroll">',
        f"<table>\n<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>",
        *(
            f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{cell}</td>" for cell in row)}</tr>'
            for name, row in zip(names, rows, strict=True)
        ),
        "</tbody>\n</table>",
        "</div>",
    ]


def _number(value: float | None, form: str) -> str:
    return "n/a" if value is None else format(value, form)
