"""What lookups cost a pass, and how much of it the network waited for."""

import time
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Sums over the steps since the last `Meter.take`.

    Attributes:
        num_steps: Steps.
        exposed_s: Seconds that steps waited for rows.
        lookup_s: Seconds that lookups took, on their lane.
    """

    num_steps: int
    exposed_s: float
    lookup_s: float

    @property
    def hidden_share(self) -> float:
        """The overlap ratio: the part of the lookups' time that no step waited for, in [0, 1]; 0 without lookups."""
        return max(0.0, 1.0 - self.exposed_s / self.lookup_s) if self.lookup_s else 0.0


class Meter:
    """Adds up seconds, by a clock on CPU and by events on CUDA, which are read at the end of a pass only.

    Args:
        device: Of the tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._num_steps = 0
        self._exposed, self._lookup = _Clock(self._is_cuda), _Clock(self._is_cuda)

    def exposed(self) -> "_Clock":
        """Measures a wait, as a context."""
        return self._exposed

    def lookup(self) -> "_Clock":
        """Measures a part of a lookup, as a context; one at a time."""
        return self._lookup

    def step(self) -> None:
        """Counts a step."""
        self._num_steps += 1

    def take(self) -> Evidence:
        """The sums, which begin again."""
        found = Evidence(num_steps=self._num_steps, exposed_s=self._exposed.take_s(), lookup_s=self._lookup.take_s())
        self._num_steps = 0
        return found


class _Clock:
    """A stopwatch for one thread."""

    def __init__(self, is_cuda: bool) -> None:
        self._is_cuda = is_cuda
        self._total_s = self._began_s = 0.0
        self._events: list[torch.cuda.Event] = []

    def __enter__(self) -> None:
        if self._is_cuda:
            self._mark()
        else:
            self._began_s = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        if self._is_cuda:
            self._mark()
        else:
            self._total_s += time.perf_counter() - self._began_s

    def _mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._events.append(torch.cuda.current_stream().record_event(event))

    def take_s(self) -> float:
        if self._events:
            torch.cuda.synchronize()
            pairs = zip(self._events[::2], self._events[1::2], strict=True)
            self._total_s += sum(begin.elapsed_time(end) for begin, end in pairs) / 1000
            self._events.clear()
        total_s, self._total_s = self._total_s, 0.0
        return total_s
