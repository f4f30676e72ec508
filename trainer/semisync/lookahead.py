"""Coming batches, seen before their turn."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

B = TypeVar("B")


@dataclass(frozen=True, kw_only=True)
class Coming(Generic[B]):
    """A batch on its way: which it is, counted from 0, and what it looks up."""

    number: int
    batch: B
    ids: Any


class Lookahead(Generic[B]):
    """A stream of batches whose next ones may be seen before they are taken.

    Args:
        batches: The stream; read no further than is looked.
        ids_of: What a batch looks up, as the lookup wants it.
        prepare: Done to each batch when it is first seen: the copy to a device, say.
    """

    def __init__(
        self,
        batches: Iterable[B],
        ids_of: "Callable[[B], Any]",
        prepare: Callable[[B], B] = lambda batch: batch,
    ) -> None:
        self._batches, self._ids_of, self._prepare = iter(batches), ids_of, prepare
        self._seen: deque[Coming[B]] = deque()
        self._num_seen = 0

    def peek(self, distance: int) -> Coming[B] | None:
        """The batch that comes after ``distance`` others; None beyond the end of the stream.

        Raises:
            Exception: What the stream raised, with a note that names the batch.
        """
        while len(self._seen) <= distance:
            try:
                batch = self._prepare(next(self._batches))
                ids = self._ids_of(batch)
            except StopIteration:
                return None
            except Exception as error:
                error.add_note(f"while batch {self._num_seen} of this pass was read (counted from 0)")
                raise
            self._seen.append(Coming(number=self._num_seen, batch=batch, ids=ids))
            self._num_seen += 1
        return self._seen[distance]

    def take(self) -> Coming[B] | None:
        """The next batch, which leaves the stream; None at its end."""
        coming = self.peek(0)
        if coming is not None:
            self._seen.popleft()
        return coming
