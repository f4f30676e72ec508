"""Counts the faults that tests inject, as whoever injects them saw them happen."""

from collections import Counter

LEAST = 300
"""How many faults a whole run injects."""

injected: Counter[str] = Counter()
seeds: list[int] = []


def summary() -> str:
    """All of it on one line."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(injected.items()))
    return f"faults injected: {injected.total()} ({kinds}); seeds: {', '.join(map(str, sorted(set(seeds))))}"
