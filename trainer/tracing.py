"""A trace of some training steps, for https://ui.perfetto.dev."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch._C._profiler import _ExperimentalConfig

from trainer.batches.batch import Batch
from trainer.loop import Losses, Observer
from trainer.ranges import naming


class _Tracing:
    """Tells another observer, and starts and ends the trace between steps."""

    def __init__(self, observer: Observer, num_steps: int) -> None:
        self._observer, self._num_steps, self._number = observer, num_steps, 0
        # The lookups' lane is a thread of its own.
        everywhere = _ExperimentalConfig(profile_all_threads=True)
        self.profile = torch.profiler.profile(experimental_config=everywhere)
        self._running = ExitStack()

    def step(self, progress: float, batch: Batch, losses: Losses, *, adapting: bool) -> None:
        """See `trainer.loop.Observer`."""
        self._observer.step(progress, batch, losses, adapting=adapting)
        if self._number == self._num_steps:
            self.end()
        elif self._number == 0:  # the first step of a pass fills the pipeline
            self._running.enter_context(naming())
            self._running.enter_context(self.profile)
        self._number += 1

    def end(self) -> None:
        """Ends the trace, if it is not over yet."""
        self._running.close()


@contextmanager
def traced(observer: Observer, *, num_steps: int, path: Path) -> Iterator[Observer]:
    """Traces steps of a pass, from its second on, on all threads and on the GPU.

    Ranges are named: ``network``, and ``lookup:`` send ids, read rows, refresh rows, update and wait.

    Args:
        observer: Is told as before.
        num_steps: Steps to trace, at most.
        path: Of the trace, as Chrome's JSON.
    """
    tracing = _Tracing(observer, num_steps)
    yield tracing
    tracing.end()
    path.parent.mkdir(parents=True, exist_ok=True)
    tracing.profile.export_chrome_trace(str(path))
