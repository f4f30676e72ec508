"""Prometheus metrics of a training, served by rank 0 while it runs.

``THAWLINE_METRICS_PORT`` in the environment names the port; without it nothing is served or counted. Everything here is
a number that the host has at hand: nothing waits for a GPU.
"""

import os
import time
from functools import cache

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

from trainer import logs
from trainer.recipe import Recipe

PORT_VARIABLE = "THAWLINE_METRICS_PORT"

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LABELS = ("recipe", "run")

# A process serves one registry, whatever runs it makes; the labels tell them apart.
_ROWS = Counter("thawline_rows", "Impressions trained on, all ranks together.", _LABELS)
_STEPS = Counter("thawline_steps", "Training steps.", _LABELS)
_EXPOSED = Counter(
    "thawline_lookup_exposed_seconds", "Seconds that steps waited for rows; added at the end of each pass.", _LABELS
)
_READER_WAIT = Counter(
    "thawline_reader_wait_seconds", "Seconds that steps waited for batches; added at the end of each pass.", _LABELS
)
_STEP = Histogram("thawline_step_seconds", "Seconds from one step's end to the next's.", _LABELS, buckets=_BUCKETS_S)
_STALENESS = Gauge("thawline_staleness_updates", "Updates that a looked-up row may lack.", _LABELS)
_ADAPTING = Gauge("thawline_adapting", "1 while the tables adapt, 0 while they are frozen.", _LABELS)
_EPOCH = Gauge("thawline_epoch", "The pass under way, from 1 on.", _LABELS)
_PROGRESS = Gauge("thawline_progress_ratio", "Share of the steps of all passes that are done.", _LABELS)


class Telemetry:
    """Counts one training.

    Args:
        recipe: What is trained.
        num_steps: Of all passes together.
    """

    def __init__(self, recipe: Recipe, *, num_steps: int) -> None:
        labels = (recipe.name, os.environ.get(logs.RUN_VARIABLE, ""))
        self._num_steps, self._num_done = num_steps, 0
        self._is_semi = recipe.lookup.mode == "semi"
        self._ended_s = time.perf_counter()
        self._rows, self._steps, self._exposed = (metric.labels(*labels) for metric in (_ROWS, _STEPS, _EXPOSED))
        self._reader_wait = _READER_WAIT.labels(*labels)
        self._step = _STEP.labels(*labels)
        self._staleness, self._adapting = _STALENESS.labels(*labels), _ADAPTING.labels(*labels)
        self._epoch, self._progress = _EPOCH.labels(*labels), _PROGRESS.labels(*labels)

    def begin_epoch(self) -> None:
        """Starts the clock of a pass."""
        self._ended_s = time.perf_counter()

    def step(self, *, epoch: int, num_rows: int, adapting: bool) -> None:
        """Counts a step.

        Args:
            epoch: Passes made before this one.
            num_rows: Impressions of the step, all ranks together.
            adapting: Whether the tables adapted.
        """
        ended_s = time.perf_counter()
        self._step.observe(ended_s - self._ended_s)
        self._ended_s = ended_s
        self._num_done += 1
        self._rows.inc(num_rows)
        self._steps.inc()
        self._adapting.set(adapting)
        self._staleness.set(adapting and self._is_semi)
        self._epoch.set(epoch + 1)
        self._progress.set(self._num_done / self._num_steps)

    def end_epoch(self, *, exposed_s: float, reader_wait_s: float) -> None:
        """Counts the seconds that a pass's steps waited for rows (on a GPU known only then) and for batches."""
        self._exposed.inc(exposed_s)
        self._reader_wait.inc(reader_wait_s)

    def resume(self, *, num_done: int) -> None:
        """Goes on after steps that were made before."""
        self._num_done = num_done


@cache
def serve() -> bool:
    """Serves this process' metrics from here on, if the environment says where; a port that is taken stops no training.

    Returns:
        Whether someone may scrape, and so whether there is any sense in counting.

    Raises:
        ValueError: The port is no number.
    """
    port = os.environ.get(PORT_VARIABLE)
    if not port:
        return False
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        prometheus_client.start_http_server(int(port))
    except OSError as error:
        logs.say(f"no metrics: port {port} cannot be served ({error.strerror})", level="warning")
        return False
    return True
