"""The tables that a retrain and a comparison end with."""

from collections.abc import Mapping
from typing import Any


def summary_table(summary: Mapping[str, Any]) -> str:
    """A run's summary for people.

    Args:
        summary: What ``summary.json`` holds: model, version, decision, reasons, window, quality, metrics, lift,
            duration_s.
    """
    window = summary["window"]
    lines = [
        f"{summary['model']} version {summary['version']}: {summary['decision']}",
        f"  window    {window['days']} days, {window['first_day']} to {window['last_day']}, {window['rows']:,} rows; "
        f"held out {window['heldout_day']}",
        f"  data      {_quality(summary['quality'])}",
        "",
        *_metric_lines(summary["metrics"], summary["champion_metrics"]),
    ]
    lift = summary["lift"]
    if lift:
        lines += ["", "  lift against the champion"]
        lines += [f"    {name:<20} {_lift(interval)}" for name, interval in lift.items()]
    lines += ["", *(f"  because   {reason}" for reason in summary["reasons"])]
    return "\n".join(lines)


def _quality(quality: Mapping[str, Any]) -> str:
    findings = quality["findings"]
    found = f", {findings} finding{'' if findings == 1 else 's'}" if findings else ""
    return f"{quality['verdict']}{found}: {quality['page']}"


def comparison_table(comparison: Mapping[str, Any]) -> str:
    """A comparison's lifts for people, one line an arm and window length.

    Args:
        comparison: What ``comparison.json`` holds.
    """
    heldout, hit = comparison["heldout"], f"save_hit{comparison['hit_k']}"
    seeds = f"{len(comparison['seeds'])} seed{'' if len(comparison['seeds']) == 1 else 's'}"
    width = max(len("arm"), *(len(entry["arm"]) for entry in comparison["arms"]))
    head = f"  {'arm':<{width}}  {'days':>4}  {'save_auc':>8}  {'lift of save_auc':<26}  {'lift of ' + hit:<26}"
    lines = [
        f"{comparison['recipe']}: arms against {comparison['baseline']}, {seeds}",
        f"  held out  {heldout['day']}, {heldout['rows']:,} rows, {heldout['users']:,} users; "
        f"{comparison['confidence']:.0%} intervals over its users",
        "",
        f"{head.rstrip()}",
    ]
    for entry in comparison["arms"]:
        auc = _number(entry["metrics"]["save_auc"]["point"])
        lifts = [_lift(entry["lift"][name]) if entry["lift"] else "baseline" for name in ("save_auc", hit)]
        line = f"  {entry['arm']:<{width}}  {entry['window_days']:>4}  {auc:>8}  {lifts[0]:<26}  {lifts[1]:<26}"
        lines.append(line.rstrip())
    lines += [
        f"  guard     {entry['arm']}, {entry['window_days']} days, seed {seed}: refrozen after epoch {epoch}"
        for entry in comparison["arms"]
        for seed, epoch in entry["refrozen_at"].items()
    ]
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
