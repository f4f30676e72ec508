"""An iterator on a thread of its own, some items ahead of who reads it."""

import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

Check = Callable[[], None]


class Stopped(Exception):
    """Nobody reads any more."""


class _End:
    """Comes after the last item, with what ended them early."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Prefetch(Generic[T]):
    """Makes items ahead on a daemon thread, which lives until `stop` and `join` or the items' end.

    Threads suffice where processes are usual: numpy and Arrow let go of the interpreter while they decode and copy, and
    what they made need not be sent anywhere.

    Args:
        make: Makes the items; is given a function to call now and then, which raises `Stopped` once nobody reads.
        depth: Items that are made and not yet taken, the one in the making among them.
        name: Of the thread.
    """

    def __init__(self, make: Callable[[Check], Iterator[T]], *, depth: int, name: str) -> None:
        self.waited_s = 0.0
        self._make = make
        self._queue: SimpleQueue[T | _End] = SimpleQueue()
        self._slots = Semaphore(depth)
        self._is_stopped = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        """Yields the items.

        Raises:
            BaseException: What making them raised.
            Stopped: `stop` was called.
        """
        while True:
            began_s = time.perf_counter()
            item = self._queue.get()
            self.waited_s += time.perf_counter() - began_s
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            self._slots.release()
            yield item
            del item  # or two would be held while the next is waited for

    def stop(self) -> None:
        """Ends the making of items, and the waiting for them."""
        self._is_stopped = True
        self._slots.release()
        self._queue.put(_End(Stopped()))

    def join(self) -> None:
        """Waits until the thread has ended."""
        self._thread.join()

    def _check(self) -> None:
        if self._is_stopped:
            raise Stopped

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._slots.acquire()
            self._check()
            for item in self._make(self._check):
                self._queue.put(item)
                del item
                self._slots.acquire()
                self._check()
        except BaseException as raised:
            error = raised
        self._queue.put(_End(error))
