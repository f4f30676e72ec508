"""How a profiler's trace is read."""

from typing import Any

import pytest

from benchmarks.overlap import overlap


def kernel(stream: int, begin: float, end: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "ts": begin, "dur": end - begin, "args": {"stream": stream}}


def test_the_overlapped_part_of_lookups_is_counted_once() -> None:
    network = [kernel(7, 0, 1000), kernel(7, 2000, 3000), kernel(7, 2500, 3000)]
    lookups = [kernel(13, 900, 1100), kernel(13, 1000, 1100), kernel(13, 1500, 1600), kernel(13, 2000, 2100)]
    other = {"ph": "X", "cat": "cpu_op", "ts": 0, "dur": 9000, "args": {}}
    found = overlap([*lookups, other, *network])
    assert found == {"overlapped_share": 0.5, "lookup_kernels_ms": 0.4, "network_kernels_ms": 2.0}


@pytest.mark.parametrize("events", [[], [kernel(7, 0, 10), kernel(7, 5, 20)]])
def test_without_a_second_stream_nothing_overlaps(events: list[dict[str, Any]]) -> None:
    assert overlap(events)["overlapped_share"] == 0.0


def test_one_after_the_other_is_no_overlap() -> None:
    assert overlap([kernel(7, 0, 100), kernel(13, 100, 150), kernel(7, 150, 200)])["overlapped_share"] == 0.0
