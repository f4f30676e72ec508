"""The table that a retrain ends with."""

from collections.abc import Mapping
from typing import Any


def summary_table(summary: Mapping[str, Any]) -> str:
    """A run's summary for people.

    Args:
        summary: What ``summary.json`` holds: model, version, decision, reasons, window, metrics, lift, duration_s.
    """
    window = summary["window"]
    lines = [
        f"{summary['model']} version {summary['version']}: {summary['decision']}",
        f"  window    {window['days']} days, {window['first_day']} to {window['last_day']}, {window['rows']:,} rows; "
        f"held out {window['heldout_day']}",
        "",
        *_metric_lines(summary["metrics"], summary["champion_metrics"]),
    ]
    lift = summary["lift"]
    if lift:
        lines += ["", "  lift against the champion"]
        lines += [f"    {name:<20} {_lift(interval)}" for name, interval in lift.items()]
    lines += ["", *(f"  because   {reason}" for reason in summary["reasons"])]
    return "\n".join(lines)


def _metric_lines(candidate: Mapping[str, float | None], champion: Mapping[str, float | None] | None) -> list[str]:
    """One line a metric; candidate and champion side by side where there are both."""
    head = f"    {'on the held-out day':<20} {'candidate':>10}" + (f" {'champion':>10}" if champion else "")
    return [head] + [
        f"    {name:<20} {_number(value):>10}" + (f" {_number(champion[name]):>10}" if champion else "")
        for name, value in candidate.items()
    ]


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4f}"


def _lift(interval: Mapping[str, float | None]) -> str:
    ends = ["n/a" if interval[end] is None else f"{interval[end]:+.2%}" for end in ("point", "low", "high")]
    return f"{ends[0]} [{ends[1]}, {ends[2]}]"
