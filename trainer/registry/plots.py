"""Figures of one run, drawn without a display."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trainer.evaluation.lift import Interval

_PHASE_COLORS = {"frozen": "tab:blue", "adapting": "tab:orange", "mixed": "tab:purple"}


def plot_learning_curves(history: Mapping[str, Any], path: Path) -> None:
    """Draws loss by epoch, coloured by the tables' phase, beside the held-out AUC after each epoch.

    Thaw and refreeze are marked.

    Args:
        history: What training wrote to ``history.json``.
        path: PNG to write.
    """
    figure = new_figure(width=10.0, height=4.0)
    loss_axes, auc_axes = figure.subplots(1, 2)
    _draw_loss(loss_axes, history["curve"])
    epochs = [(epoch["epoch"], epoch["heldout"]) for epoch in history["epochs"] if epoch.get("heldout")]
    for name in sorted({name for _, heldout in epochs for name in heldout if name.endswith("_auc")}):
        points = [(epoch, heldout[name]) for epoch, heldout in epochs if heldout.get(name) is not None]
        auc_axes.plot(*zip(*points, strict=True), marker="o", label=name.removesuffix("_auc"))
    auc_axes.set_ylabel("AUC on the held-out day")
    for axes in (loss_axes, auc_axes):
        if history["thaw_epoch"] is not None:
            axes.axvline(history["thaw_epoch"], color="black", linestyle="--", label="thaw")
        if history["refrozen_at"] is not None:
            axes.axvline(history["refrozen_at"], color="black", linestyle=":", label="refrozen by the guard")
        axes.set_xlabel("epoch")
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    figure.suptitle(f"arm: {history['arm']}")
    figure.savefig(path)


def plot_lift(lift: Mapping[str, Interval], confidence: float, path: Path) -> None:
    """Draws each relative lift against the champion as a point with its interval; zero is marked.

    Args:
        lift: Lifts as fractions, by metric.
        confidence: Coverage of the intervals, 0 to 1.
        path: PNG to write.
    """
    figure = new_figure(width=7.0, height=1.4 + 0.5 * len(lift))
    axes = figure.subplots()
    points, lows, highs = 100 * np.array([(i.point, i.low, i.high) for i in lift.values()]).T
    places = np.arange(len(lift))
    axes.hlines(places, lows, highs, color="tab:blue")
    axes.plot(points, places, "o", color="tab:blue")
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_yticks(places, list(lift))
    axes.set_ylim(len(lift) - 0.5, -0.5)
    axes.set_xlabel(f"lift against the champion, % with {confidence:.0%} interval")
    figure.savefig(path)


def new_figure(*, width: float, height: float) -> Figure:
    """A figure of that many inches that needs no display."""
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_loss(axes: Axes, curve: list[dict[str, Any]]) -> None:
    labelled: set[str] = set()
    for phase, run in groupby(curve, key=lambda point: str(point["phase"])):
        points = [(point["epoch"], point["loss"]) for point in run if point["loss"] is not None]
        label = None if phase in labelled else f"tables {phase}"
        labelled.add(phase)
        axes.plot(*zip(*points, strict=True), color=_PHASE_COLORS.get(phase, "tab:gray"), label=label)
    axes.set_ylabel("training loss")
