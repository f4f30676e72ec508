"""The page of a window's checks: one HTML file that fetches nothing and runs nothing."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from trainer.windows.quality.drawing import day_bars, hour_grid, paired_bars, ranked_bars

CHECKS = {
    "schema": ("Columns", "ask who writes the log what changed; a new column is ignored until the recipe names it"),
    "volume": ("Rows", "see whether the log of that day is complete, then whether traffic really changed"),
    "empty_hours": ("Empty hours", "look for files that are late or lost; prepare the day again when they are there"),
    "label_rate": ("Label rates", "see whether labels are joined completely yet; train a day later if they come late"),
    "nulls": ("Nulls", "mend the column at its source, or leave it out of the log"),
    "duplicates": ("Duplicates", "look for files that were written twice; the duplicates themselves are dropped"),
    "quarantine": ("Quarantine", "read the quarantine file beside the day: each row has its reason"),
    "new_pins": ("New pins", "see whether pin ids are still hashed or mapped the same way"),
    "range": ("Ranges", "look for a changed unit or a default such as -1 in that feature"),
    "drift": ("Drift", "compare how the feature is computed with how it was; retrain the backbone if it is to stay"),
    "mean": ("Means", "compare how the feature is computed with how it was"),
}
"""Names of the checks for people, and what to do about a finding."""

_VERDICTS = {
    "ok": "Nothing is out of the ordinary.",
    "warn": "Something is odd; the run trains on.",
    "stop": "Something is odd, and the recipe says to stop: nothing is trained.",
}
_MAX_RANKED = 40
_MAX_SHIFTS = 6

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto;
  max-width: 64rem; padding: 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; } p, li { max-width: 52rem; } .facts { color: #444; margin: 0; }
.verdict { border-left: .4rem solid #1b1b1b; padding: .2rem .8rem; font-size: 1.1rem; }
.scroll { overflow-x: auto; margin-top: 1rem; } table { border-collapse: collapse; font-size: .9rem; }
caption { text-align: left; color: #444; padding-bottom: .4rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top; }
th { background: #f4f4f4; } th, td.text { text-align: left; } td { font-variant-numeric: tabular-nums; }
figure { margin: 0 0 .6rem; } svg { width: 100%; max-width: 45rem; height: auto; display: block; }
figcaption { color: #444; font-size: .92rem; max-width: 52rem; } summary { cursor: pointer; margin-top: .6rem; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page_of(report: Mapping[str, Any]) -> str:
    """The page for people.

    Args:
        report: What `trainer.windows.quality.report.QualityReport.to_json` gives.
    """
    days = [day["day"] for day in report["days"]]
    title = f"Data checks of {report['recipe']}, {days[0]} to {days[-1]}"
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            *_outcome(report),
            *_days(report),
            *_hours(report),
            *(part for day in report["judged"] for part in _features(report, day)),
            *_everything(report),
            *_method(report),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _outcome(report: Mapping[str, Any]) -> list[str]:
    breaches = _breaches(report)
    judged = " and ".join(report["judged"]) or "no day"
    unjudged = report["unjudged"]
    few = f" Not checked: {', '.join(unjudged)}, with too few days before." if unjudged else ""
    return [
        f'<p class="verdict"><strong>Verdict: {escape(report["verdict"])}.</strong> {_VERDICTS[report["verdict"]]}</p>',
        f'<p class="facts">Checked: {escape(judged)}, each against the days before it; {len(report["findings"])} '
        f"checks, {len(breaches)} out of the ordinary.{escape(few)}</p>",
        *(["<h2>What is odd</h2>", *_breach_table(breaches)] if breaches else []),
    ]


def _breaches(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [finding for finding in report["findings"] if finding["level"] != "ok"]


def _of(report: Mapping[str, Any], check: str, day: str) -> list[Mapping[str, Any]]:
    return [finding for finding in report["findings"] if (finding["check"], finding["day"]) == (check, day)]


def _breach_table(breaches: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            finding["day"],
            [CHECKS[finding["check"]][0], finding["level"], finding["message"], CHECKS[finding["check"]][1]],
        )
        for finding in breaches
    ]
    return _table("Findings beyond their limit", ["Day", "Check", "Level", "Found", "What to do"], rows, is_text=True)


def _days(report: Mapping[str, Any]) -> list[str]:
    days, judged = report["days"], report["judged"]
    names = [day["day"] for day in days]
    labels = list(days[0]["label_rates"])
    charts = [
        ("Rows a day", [day["rows"] for day in days], _whole),
        *((f"Share of rows with {label}", [day["label_rates"][label] for day in days], _percent) for label in labels),
        ("Share of pins that are new to the window", [day["new_pin_share"] for day in days], _percent),
        ("Share of raw rows dropped as duplicates", [day["duplicate_share"] for day in days], _percent),
        ("Share of raw rows in quarantine", [day["quarantine_share"] for day in days], _percent),
    ]
    heads = ["Day", "Rows", "Slates", "Users", "Pins", "New pins", "Duplicates", "Quarantine", *labels]
    cells = [
        (
            day["day"],
            [
                *(_whole(day[name]) for name in ("rows", "slates", "users", "pins")),
                *(_percent(day[name]) for name in ("new_pin_share", "duplicate_share", "quarantine_share")),
                *(_percent(day["label_rates"][label]) for label in labels),
            ],
        )
        for day in days
    ]
    return [
        "<h2>Day by day</h2>",
        "<p>Outlined bars are the checked days. Point at a bar for its number; all numbers are in the table below.</p>",
        *(
            part
            for title, values, form in charts
            for part in (
                f"<h3>{escape(title)}</h3>",
                *(
                    _figure(day_bars(title, names, values, form, judged))
                    if any(values)
                    else ["<p>None on any day.</p>"]
                ),
            )
        ),
        *_details("Numbers by day", _table("Days of the window, the newest last", heads, cells)),
    ]


def _hours(report: Mapping[str, Any]) -> list[str]:
    names = [day["day"] for day in report["days"]]
    hours = [day["rows_by_hour"] for day in report["days"]]
    cells = [(name, [_whole(rows) for rows in of_day]) for name, of_day in zip(names, hours, strict=True)]
    return [
        "<h2>Hours</h2>",
        *_figure(
            hour_grid("Rows by hour of the UTC day", names, hours, report["judged"]),
            "The darker a cell, the more rows; a cross marks an hour without any. Checked days are outlined.",
        ),
        *_details("Numbers by hour", _table("Rows", ["Day", *(f"{hour:02d}" for hour in range(24))], cells)),
    ]


def _features(report: Mapping[str, Any], day: str) -> list[str]:
    shifts = sorted((shift for shift in report["shifts"] if shift["day"] == day), key=lambda shift: -shift["psi"])
    if not shifts:
        return []
    limits = {finding["column"]: finding["threshold"] for finding in _of(report, "drift", day)}
    ranked, title = shifts[:_MAX_RANKED], f"Population stability index by column, {day}"
    drifted = [shift for shift in shifts if shift["psi"] > limits[shift["column"]]]
    heads = ["Column", "Index", "Mean", "usually", "Deviation", "usually", "Range", "usually"]
    cells = [
        (
            shift["column"],
            [
                f"{shift['psi']:.3f}",
                *(f"{shift[name]:.5g}" for name in ("mean", "usual_mean", "deviation", "usual_deviation")),
                *(f"{shift[low]:.5g} to {shift[high]:.5g}" for low, high in _RANGES),
            ],
        )
        for shift in shifts
    ]
    return [
        f"<h2>Features of {escape(day)} against the days before</h2>",
        *_figure(
            ranked_bars(
                title,
                [shift["column"] for shift in ranked],
                [shift["psi"] for shift in ranked],
                [limits[shift["column"]] for shift in ranked],
            ),
            f"0 is no shift, a tick the column's limit; bars beyond it are outlined. {len(ranked)} of {len(shifts)} "
            "columns, the most shifted first.",
        ),
        *(part for shift in drifted[:_MAX_SHIFTS] for part in _shift(shift)),
        *_details("Numbers by column", _table(f"Columns of {day}, the most shifted first", heads, cells)),
    ]


_RANGES = (("low", "high"), ("usual_low", "usual_high"))


def _shift(shift: Mapping[str, Any]) -> list[str]:
    names = [f"{_edge(low)} to {_edge(high)}" for low, high in shift["edges"]]
    title = f"{shift['column']} on {shift['day']}"
    return [
        f"<h3>{escape(title)}</h3>",
        *_figure(
            paired_bars(title, names, shift["expected"], shift["found"]),
            "Share of rows by group of values: the trailing days on the left, the checked day outlined on the right.",
        ),
    ]


def _everything(report: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            finding["day"],
            [
                CHECKS[finding["check"]][0],
                finding["column"] or "whole day",
                f"{finding['value']:.5g}",
                "" if finding["usual"] is None else f"{finding['usual']:.5g}",
                f"{finding['threshold']:.5g}",
                finding["level"],
            ],
        )
        for finding in report["findings"]
    ]
    heads = ["Day", "Check", "Column", "Found", "Usual", "Limit", "Level"]
    return ["<h2>All checks</h2>", *_details(f"{len(rows)} checks", _table("Every check, in order", heads, rows))]


def _method(report: Mapping[str, Any]) -> list[str]:
    limits = ", ".join(f"{name} {value}" for name, value in report["config"].items())
    return [
        "<h2>How to read it</h2>",
        "<ul>",
        "<li>Each checked day is held against all days of the window before it. What is usual is their median; where "
        "they differ much from each other, limits are wider.</li>",
        "<li>The population stability index compares a day's values with the trailing days' over ten groups. Up to 0.1 "
        "is no shift, up to 0.25 a small one (Siddiqi, Credit Risk Scorecards, 2006). On a day of few slates the limit "
        "is what one comparison in a thousand exceeds by chance (Yurdakul, 2018).</li>",
        "<li>Numbers of distinct users and pins, and shares of new pins, are estimates on days with more than a few "
        "thousand users or 16,384 pins.</li>",
        f"<li>The recipe's limits (section quality): {escape(limits)}.</li>",
        "</ul>",
    ]


def _figure(drawing: str, caption: str = "") -> list[str]:
    told = [f"<figcaption>{escape(caption)}</figcaption>"] if caption else []
    return ["<figure>", drawing, *told, "</figure>"]


def _details(summary: str, content: Iterable[str]) -> list[str]:
    return ["<details>", f"<summary>{escape(summary)}</summary>", *content, "</details>"]


def _table(
    caption: str, heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], *, is_text: bool = False
) -> list[str]:
    kind = ' class="text"' if is_text else ""
    return [
        '<div class="scroll">',
        f"<table>\n<caption>{escape(caption)}</caption>",
        "<thead><tr>" + "".join(f'<th scope="col">{escape(head)}</th>' for head in heads) + "</tr></thead>\n<tbody>",
        *(
            f'<tr><th scope="row">{escape(name)}</th>'
            + "".join(f"<td{kind}>{escape(cell)}</td>" for cell in cells)
            + "</tr>"
            for name, cells in rows
        ),
        "</tbody>\n</table>",
        "</div>",
    ]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2%}"


def _edge(value: float) -> str:
    return "0" if abs(value) < 1e-30 else f"{value:.3g}"
