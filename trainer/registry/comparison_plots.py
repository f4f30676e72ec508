"""Figures of a comparison: lifts as a forest, curves by epoch with the thaw marked, lifts by slice."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from trainer.registry.plots import new_figure

History = tuple[str, int, int, Mapping[str, Any]]
"""Arm, window days, seed, and what training wrote to ``history.json``."""

DIMENSIONS = {
    "pin_impressions": "impressions of the pin in the window",
    "user_impressions": "impressions of the user in the window",
    "pin_age": "pin in the window",
}
"""What slices are told apart by, in words."""

# Okabe and Ito's colours, which the colour-blind tell apart; markers differ too.
_COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")


def draw_all(comparison: Mapping[str, Any], histories: Sequence[History], folder: Path) -> dict[str, Path]:
    """Draws every figure.

    Args:
        comparison: What ``comparison.json`` holds.
        histories: Of all cases.
        folder: Folder for the PNGs.

    Returns:
        The paths by name: ``forest``, ``curves``, ``slices``.
    """
    paths = {name: folder / f"{name}.png" for name in ("forest", "curves", "slices")}
    draw_forest(comparison, paths["forest"])
    draw_curves(comparison, histories, paths["curves"])
    draw_slices(comparison, paths["slices"])
    return paths


def draw_forest(comparison: Mapping[str, Any], path: Path) -> None:
    """Draws each arm's lifts with their intervals, and each seed's lift as a small mark; zero is marked."""
    entries = [entry for entry in comparison["arms"] if entry["lift"]]
    metrics = _metrics(comparison)
    figure = new_figure(width=10.5, height=1.6 + 0.42 * len(entries))
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    places = _places(entries)
    for axes, (metric, title) in zip(panels, metrics.items(), strict=True):
        for place, entry in zip(places, entries, strict=True):
            color, marker = _style(comparison, entry["arm"])
            _draw_interval(axes, place, entry["lift"][metric], color, marker)
            of_seeds = [seed["lift"][metric] for seed in entry["seeds"] if seed["lift"][metric] is not None]
            if len(entry["seeds"]) > 1:
                axes.plot(100 * np.array(of_seeds), [place + 0.28] * len(of_seeds), "|", color=color, markersize=7)
        axes.axvline(0.0, color="#444444", linewidth=1)
        axes.set_xlabel(f"{title} lift against {comparison['baseline']}, %")
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    panels[0].set_yticks(places, [f"{entry['arm']}, {entry['window_days']} days" for entry in entries])
    panels[0].set_ylim(max(places) + 0.7, min(places) - 0.7)
    figure.savefig(path)


def draw_curves(comparison: Mapping[str, Any], histories: Sequence[History], path: Path) -> None:
    """Draws, by epoch, training loss, held-out AUC and the canary's self-influence; a row of panels a window length.

    A line is a seed; a dashed stretch of loss was trained with frozen tables. Vertical lines mark thaws, dotted ones
    where the guard froze the tables again.
    """
    lengths = [window["days"] for window in comparison["windows"]]
    figure = new_figure(width=12.0, height=0.9 + 3.2 * len(lengths))
    panels = figure.subplots(len(lengths), 3, squeeze=False)
    for row, days in zip(panels, lengths, strict=True):
        for arm, _, _, history in (history for history in histories if history[1] == days):
            color, marker = _style(comparison, arm)
            size = 9 if arm == comparison["baseline"] else 5  # other arms may begin alike and cover its mark
            _draw_loss(row[0], history["curve"], color)
            _draw_epochs(row[1], history, "heldout", "save_auc", 1.0, color, marker, size)
            _draw_epochs(row[2], history, "canary", "self_influence", 100.0, color, marker, size)
            for axes in row:
                _mark_thaw(axes, history, color)
        for axes, label in zip(
            row, ("training loss", "AUC on the held-out day", "self-influence, % of loss"), strict=True
        ):
            axes.set_ylabel(label)
            axes.set_xlabel("epoch")
            axes.set_title(f"{days} days", fontsize=10)
            axes.grid(color="#eeeeee", linewidth=0.6)
    figure.legend(
        handles=[*_arm_handles(comparison, _arms(comparison)), *_line_handles()], loc="outside upper center", ncols=6
    )
    figure.savefig(path)


def draw_slices(comparison: Mapping[str, Any], path: Path) -> None:
    """Draws each arm's AUC lift within each slice; a row of panels a window length, a panel a dimension."""
    lengths = [window["days"] for window in comparison["windows"]]
    figure = new_figure(width=12.0, height=0.9 + 3.2 * len(lengths))
    panels = figure.subplots(len(lengths), len(DIMENSIONS), squeeze=False, sharey="row", width_ratios=(4, 4, 2))
    judged = [arm for arm in _arms(comparison) if arm != comparison["baseline"]]
    for row, days in zip(panels, lengths, strict=True):
        for axes, (dimension, title) in zip(row, DIMENSIONS.items(), strict=True):
            of_panel = [
                entry
                for entry in comparison["slices"]
                if entry["window_days"] == days and entry["dimension"] == dimension
            ]
            _draw_slice_panel(axes, comparison, of_panel, judged)
            axes.set_xlabel(title)
            axes.set_title(f"{days} days", fontsize=10)
        row[0].set_ylabel("AUC lift, %")
    figure.legend(handles=_arm_handles(comparison, judged), loc="outside upper center", ncols=6)
    figure.savefig(path)


def _draw_slice_panel(
    axes: Axes, comparison: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], arms: Sequence[str]
) -> None:
    rows_of = {entry["slice"]: entry["rows"] for entry in entries}
    for number, arm in enumerate(arms):
        color, marker = _style(comparison, arm)
        shift = 0.6 * ((number + 0.5) / len(arms) - 0.5)
        for entry in (entry for entry in entries if entry["arm"] == arm):
            place = list(rows_of).index(entry["slice"]) + shift
            _draw_interval(axes, place, entry["lift"]["save_auc"], color, marker, upright=True)
    axes.axhline(0.0, color="#444444", linewidth=1)
    axes.set_xticks(range(len(rows_of)), [f"{name}\n{rows:,} rows" for name, rows in rows_of.items()], fontsize=8)
    axes.set_xlim(-0.6, len(rows_of) - 0.4)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)


def _draw_interval(
    axes: Axes, place: float, lift: Mapping[str, float | None], color: str, marker: str, *, upright: bool = False
) -> None:
    point, low, high = (
        None if lift[end] is None else 100 * float(lift[end] or 0.0) for end in ("point", "low", "high")
    )
    if low is not None and high is not None:
        (axes.vlines if upright else axes.hlines)(place, low, high, color=color, linewidth=2)
    if point is not None:
        axes.plot(*((place, point) if upright else (point, place)), marker=marker, color=color, markersize=6)


def _draw_loss(axes: Axes, curve: Sequence[Mapping[str, Any]], color: str) -> None:
    # Each stretch begins where the one before it ended, so that the line has no gaps.
    start = 0
    for end in range(1, len(curve) + 1):
        if end == len(curve) or curve[end]["phase"] != curve[start]["phase"]:
            stretch = curve[max(0, start - 1) : end]
            style = "--" if curve[start]["phase"] == "frozen" else "-"
            axes.plot(*_finite((p["epoch"], p["loss"]) for p in stretch), color=color, linestyle=style, linewidth=1)
            start = end


def _draw_epochs(
    axes: Axes, history: Mapping[str, Any], group: str, name: str, scale: float, color: str, marker: str, size: float
) -> None:
    points = [(epoch["epoch"], epoch[group].get(name)) for epoch in history["epochs"]]
    xs, ys = _finite(points)
    axes.plot(xs, scale * np.array(ys), color=color, marker=marker, markersize=size, linewidth=1)
    axes.set_xticks(sorted({*(tick for tick in axes.get_xticks() if tick == int(tick) and tick > 0), *xs}))


def _mark_thaw(axes: Axes, history: Mapping[str, Any], color: str) -> None:
    if history["thaw_epoch"] is not None:
        axes.axvline(history["thaw_epoch"], color=color, linestyle="-.", linewidth=1.2, alpha=0.8)
    if history["refrozen_at"] is not None:
        axes.axvline(history["refrozen_at"], color=color, linestyle=":", linewidth=1.8)


def _arm_handles(comparison: Mapping[str, Any], arms: Iterable[str]) -> list[Line2D]:
    handles = []
    for arm in arms:
        color, marker = _style(comparison, arm)
        handles.append(Line2D([], [], color=color, marker=marker, label=arm))
    return handles


def _line_handles() -> list[Line2D]:
    return [
        Line2D([], [], color="#666666", linestyle="--", label="tables frozen"),
        Line2D([], [], color="#666666", linestyle="-.", label="thaw"),
        Line2D([], [], color="#666666", linestyle=":", label="refrozen by the guard"),
    ]


def _metrics(comparison: Mapping[str, Any]) -> dict[str, str]:
    return {"save_auc": "AUC", f"save_hit{comparison['hit_k']}": f"HIT@{comparison['hit_k']}-save"}


def _arms(comparison: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(entry["arm"] for entry in comparison["arms"]))


def _style(comparison: Mapping[str, Any], arm: str) -> tuple[str, str]:
    number = _arms(comparison).index(arm)
    return _COLORS[number % len(_COLORS)], _MARKERS[number % len(_MARKERS)]


def _places(entries: Sequence[Mapping[str, Any]]) -> list[float]:
    """Heights of the forest's rows, with a gap between window lengths."""
    place, places = 0.0, []
    for number, entry in enumerate(entries):
        if number:
            place += 1.0 if entry["window_days"] == entries[number - 1]["window_days"] else 1.6
        places.append(place)
    return places


def _finite(points: Iterable[tuple[float, float | None]]) -> tuple[list[float], list[float]]:
    kept = [(x, y) for x, y in points if y is not None]
    return [x for x, _ in kept], [y for _, y in kept]
