"""Where lookups and updates run: one after another, in the order in which they were asked for.

That order is all the pipeline's correctness rests on. It is the same on every rank, so collectives meet; and a read
sees exactly the updates that were asked for before it. After a task that failed no other runs: each fails as it did.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Lane(Protocol):
    """Runs what it is given, in order."""

    def submit(self, task: Callable[[], T], uses: Any = None) -> "Future[T]":
        """Asks for a task, which reads the tensors in ``uses``."""
        ...

    def wait(self, future: "Future[T]") -> T:
        """The result of a task, ready for use on this thread's stream; raises what the task raised."""
        ...


class InlineLane:
    """Runs each task at once, on the thread that asks for it."""

    def submit(self, task: Callable[[], T], uses: Any = None) -> "Future[T]":
        """See `Lane.submit`."""
        future: Future[T] = Future()
        future.set_result(task())
        return future

    def wait(self, future: "Future[T]") -> T:
        """See `Lane.wait`."""
        return future.result()


class ThreadLane:
    """Runs tasks on a thread and, on CUDA, on a stream of its own.

    The thread is a daemon: a rank that fails ends although its lane waits for the others in a collective. On CUDA a
    task begins after all that was asked of the GPU before it was submitted, and `wait` makes this thread's stream wait
    for the task; tensors that cross from one stream to the other are recorded on both, lest their memory be used again
    too early.

    Args:
        device: Of the tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._failure: BaseException | None = None
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=_run, args=(self._tasks,), name="lookup-lane", daemon=True).start()
        weakref.finalize(self, self._tasks.put, None)  # the thread ends with its lane

    def submit(self, task: Callable[[], T], uses: Any = None) -> "Future[T]":
        """See `Lane.submit`."""
        future: Future[T] = Future()
        asked = _event(self._stream)

        def run() -> None:
            try:
                if self._failure is not None:
                    raise self._failure
                with self._on_stream(after=asked, uses=uses):
                    result = task()
                    done = _event(self._stream)
            except BaseException as error:  # belongs to who waits for the task
                self._failure = error
                future.set_exception(error)
            else:
                future.done_event = done  # type: ignore[attr-defined]
                future.set_result(result)

        self._tasks.put(run)
        return future

    def wait(self, future: "Future[T]") -> T:
        """See `Lane.wait`."""
        result = future.result()
        done = future.done_event  # type: ignore[attr-defined]
        if done is not None:
            current = torch.cuda.current_stream()
            current.wait_event(done)
            record_on(current, result)
        return result

    @contextmanager
    def _on_stream(self, *, after: "torch.cuda.Event | None", uses: Any) -> Iterator[None]:
        if self._stream is None or after is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(after)
            record_on(self._stream, uses)
            yield


def _run(tasks: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # and what it holds


def _event(stream: "torch.cuda.Stream | None") -> "torch.cuda.Event | None":
    """An event at the end of what the current stream was asked for; None without CUDA."""
    if stream is None:
        return None
    event: torch.cuda.Event = torch.cuda.current_stream().record_event()
    return event


def record_on(stream: "torch.cuda.Stream", value: Any) -> None:
    """Tells the allocator that a stream uses the tensors in a value."""
    if isinstance(value, Tensor):
        if value.is_cuda:
            value.record_stream(stream)
    elif hasattr(value, "record_stream"):  # TorchRec's jagged tensors
        value.record_stream(stream)
    elif isinstance(value, Mapping):
        for item in value.values():
            record_on(stream, item)
    elif isinstance(value, list | tuple):
        for item in value:
            record_on(stream, item)
