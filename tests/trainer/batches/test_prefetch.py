import threading
from collections.abc import Iterator

import pytest

from trainer.batches.prefetch import Check, Prefetch, Stopped


def numbers(count: int) -> Iterator[int]:
    yield from range(count)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 10])
def test_items_come_in_their_order(count: int, depth: int) -> None:
    assert list(Prefetch(lambda _: numbers(count), depth=depth, name="test")) == list(range(count))


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_no_more_items_are_made_than_its_depth_says(depth: int) -> None:
    made = threading.Semaphore(0)
    num_made = 0

    def counted(check: Check) -> Iterator[int]:
        nonlocal num_made
        for number in range(100):
            num_made += 1
            made.release()
            yield number

    items = Prefetch(counted, depth=depth, name="test")
    reading = iter(items)
    for taken in range(1, 20):
        next(reading)
        # Everything that may be made now gets made, and nothing more.
        while num_made < taken + depth:
            assert made.acquire(timeout=10)
        assert num_made == taken + depth
    items.stop()
    items.join()


def test_an_error_comes_after_the_items_before_it() -> None:
    def failing(check: Check) -> Iterator[int]:
        yield 1
        raise ArithmeticError("a row is no number")

    reading = iter(Prefetch(failing, depth=3, name="test"))
    assert next(reading) == 1
    with pytest.raises(ArithmeticError, match=r"^a row is no number$"):
        next(reading)


def test_stopping_ends_an_item_in_the_making_and_who_waits_for_it() -> None:
    begun = threading.Event()

    def endless(check: Check) -> Iterator[int]:
        while True:
            begun.set()
            check()
        yield 0

    items = Prefetch(endless, depth=1, name="test")
    assert begun.wait(timeout=10)
    items.stop()
    items.join()
    with pytest.raises(Stopped):
        next(iter(items))
