"""Named ranges of a trace; outside one they cost nothing."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch.profiler import record_function

_num_traces = 0


def named_range(name: str) -> AbstractContextManager[object]:
    """Names what a thread does within it, while `naming` is on."""
    return record_function(name) if _num_traces else nullcontext()


@contextmanager
def naming() -> Iterator[None]:
    """Turns names on, in all threads: a profiler is there to see them."""
    global _num_traces
    _num_traces += 1
    try:
        yield
    finally:
        _num_traces -= 1
