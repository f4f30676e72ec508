"""What the steps of a run took, told by step."""

from collections.abc import Sequence

from components.step import StepEvent
from trainer.registry.summary import StepCost


def costs_by_step(events: Sequence[StepEvent]) -> dict[str, StepCost]:
    """Seconds and memory by the step's name; a step in several parts took the time during which any of them ran.

    Args:
        events: The finished steps, in the order in which they began.
    """
    costs = {}
    for name in dict.fromkeys(event.step for event in events):
        parts = [event for event in events if event.step == name]
        costs[name] = StepCost(duration_s=_busy_s(parts), peak_rss_mib=max(part.peak_rss_mib for part in parts))
    return costs


def _busy_s(parts: Sequence[StepEvent]) -> float:
    busy_s, until_s = 0.0, 0.0
    for part in parts:
        end_s = part.started_at_s + part.duration_s
        busy_s += max(0.0, end_s - max(part.started_at_s, until_s))
        until_s = max(until_s, end_s)
    return round(busy_s, 3)
