"""Prometheus metrics of a store: what its retrains decided, and when one last did.

The steps that decide end before anyone could scrape them, so their records tell: ``python -m components.exporter
--store DIR`` serves what the summaries in ``DIR/runs`` say, for as long as it runs.
"""

import argparse
import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trainer.storage.uris import local_path

_MODEL_PREFIX = "thawline-"


class Summaries(Collector):
    """Collects from the summaries of a store, which are read again at each scrape; there is one a retrain.

    Args:
        store: Folder of the runs.
    """

    def __init__(self, store: Path) -> None:
        self._store = store

    def collect(self) -> Iterable[Metric]:
        """``thawline_decisions_total`` and ``thawline_last_success_timestamp_seconds``."""
        decisions: Counter[tuple[str, str]] = Counter()
        last_s: dict[str, float] = {}
        for recipe, decision, written_s in self._read():
            decisions[recipe, decision] += 1
            last_s[recipe] = max(written_s, last_s.get(recipe, 0.0))
        told = CounterMetricFamily(
            "thawline_decisions", "Retrains on record, by what was decided.", labels=["recipe", "decision"]
        )
        for names, count in sorted(decisions.items()):
            told.add_metric(names, count)
        last = GaugeMetricFamily(
            "thawline_last_success_timestamp_seconds", "When a retrain last came to a decision.", labels=["recipe"]
        )
        for recipe, at_s in sorted(last_s.items()):
            last.add_metric([recipe], at_s)
        return [told, last]

    def _read(self) -> Iterator[tuple[str, str, float]]:
        for path in self._store.glob("runs/*/summary.json"):
            summary = json.loads(path.read_text())
            yield summary["model"].removeprefix(_MODEL_PREFIX), summary["decision"], path.stat().st_mtime


def serve(store: Path, port: int) -> None:
    """Serves a store's metrics from a thread; returns at once.

    Args:
        store: Folder of the runs.
        port: To serve on.
    """
    registry = CollectorRegistry()
    registry.register(Summaries(store))
    start_http_server(port, registry=registry)


def main() -> None:
    """Entry of ``python -m components.exporter``."""
    parser = argparse.ArgumentParser(prog="python -m components.exporter", description=__doc__)
    parser.add_argument("--store", required=True, help="folder of the runs")
    parser.add_argument("--port", type=int, default=9400, help="to serve on")
    arguments = parser.parse_args()
    serve(local_path(arguments.store), arguments.port)
    threading.Event().wait()


if __name__ == "__main__":
    main()
