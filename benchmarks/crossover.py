"""Where the gradient of a small table is faster as a matmul, and where as a scatter-add; plain torch.

In each round every way sums the same gradients, one way after another, in an order that changes from round to round.

Shape suffixes: N ids, D width of a row.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import torch
from torch import Tensor

from trainer.embeddings.small import Crossover, faster_way, sum_by_row

ROWS = (16, 64, 256, 1024, 4096, 16384)
BATCHES = (256, 1024, 4096, 16384)
SAMPLE_S = 3e-4
HOPELESS = 4.0
"""A way that takes this many times as long as another at first is not timed again: it would take all the time."""


def small_table_crossover(
    device: torch.device,
    *,
    rows: Sequence[int] = ROWS,
    batches: Sequence[int] = BATCHES,
    dim: int = 64,
    num_rounds: int = 201,
) -> dict[str, Any]:
    """Times both ways, and the one that `sum_by_row` chooses, over a grid of sizes.

    Args:
        device: Where.
        rows: Of the table.
        batches: Numbers of ids.
        dim: D.
        num_rounds: Samples of each way; a sample repeats it for about 0.3 ms.

    Returns:
        ``small_table_auto_vs_best``, the worst ``auto_vs_best`` of the grid; ``matmul_wins``, on how many of its points
        a matmul is faster; ``grid``, an entry a point: ``rows``, ``ids``, ``matmul_us``, ``scatter_us``, ``auto_us``
        (medians), ``other_scatter_us`` (of the scatter that is not ours: `nn.Embedding`'s on CPU, the atomic one on
        CUDA), ``auto`` (the way that was chosen), ``best`` (the way of the lower median) and ``auto_vs_best`` (the
        median over rounds of the chosen way's time divided by the best way's in the same round).
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as training has
    try:
        grid = [
            _point(device, num_rows=num_rows, num_ids=num_ids, dim=dim, num_rounds=num_rounds)
            for num_rows, num_ids in product(rows, batches)
        ]
    finally:
        torch.set_num_threads(num_threads)
    return {
        "device_type": device.type,
        "dim": dim,
        "num_rounds": num_rounds,
        "small_table_auto_vs_best": max(point["auto_vs_best"] for point in grid),
        "matmul_wins": sum(point["best"] == "matmul" for point in grid),
        "grid": grid,
    }


def fit_crossover(crossovers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The constants that would have chosen best on measured grids, and the worst ratio they would have had.

    Args:
        crossovers: Of `small_table_crossover`, on one device.
    """
    points = [{**point, "dim": found["dim"]} for found in crossovers for point in found["grid"]]
    products = {point["rows"] * point["ids"] * point["dim"] for point in points}
    candidates = [
        Crossover(min_ids=min_ids, max_products=max_products)
        for min_ids, max_products in product({point["ids"] for point in points}, {0, *products})
    ]
    # Of those that choose alike, the one that leaves more to the scatter.
    best = min(candidates, key=lambda tried: (_worst(points, tried), tried.max_products, -tried.min_ids))
    return {**asdict(best), "worst_vs_best": round(_worst(points, best), 3)}


def _worst(points: Sequence[Mapping[str, Any]], crossover: Crossover) -> float:
    def ratio(point: Mapping[str, Any]) -> float:
        way = crossover.way(num_rows=point["rows"], num_ids=point["ids"], dim=point["dim"])
        return float(point[f"{way}_us"] / min(point["matmul_us"], point["scatter_us"]))

    return max(ratio(point) for point in points)


def _point(device: torch.device, *, num_rows: int, num_ids: int, dim: int, num_rounds: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(num_rows + num_ids)
    ids_N = torch.randint(num_rows, (num_ids,), generator=generator).to(device)
    gradients_ND = torch.randn(num_ids, dim, generator=generator).to(device)
    calls: dict[str, Callable[[], Any]] = {
        "matmul": lambda: sum_by_row(gradients_ND, ids_N, num_rows=num_rows, way="matmul"),
        "scatter": lambda: sum_by_row(gradients_ND, ids_N, num_rows=num_rows, way="scatter"),
        "auto": lambda: sum_by_row(gradients_ND, ids_N, num_rows=num_rows),
        "other_scatter": lambda: _other_scatter(gradients_ND, ids_N, num_rows),
    }
    rounds = _rounds(calls, device, num_rounds)
    return {"rows": num_rows, "ids": num_ids, **summarize(rounds), "auto": faster_way(gradients_ND, num_rows)}


def _other_scatter(gradients_ND: Tensor, ids_N: Tensor, num_rows: int) -> Tensor:
    if gradients_ND.device.type == "cuda":
        return gradients_ND.new_zeros(num_rows, gradients_ND.shape[1]).index_add_(0, ids_N, gradients_ND)
    total_RD: Tensor = torch.ops.aten.embedding_dense_backward(gradients_ND, ids_N, num_rows, -1, False)
    return total_RD


def _rounds(calls: Mapping[str, Callable[[], Any]], device: torch.device, number: int) -> list[dict[str, float]]:
    """Seconds of each call, by round; a hopeless one's first stand in every round."""
    # The lesser of two: one alone may have met another process.
    once = {name: min(_seconds(call, device) for _ in range(2)) for name, call in calls.items()}
    repeats = max(1, min(1000, int(SAMPLE_S / min(once.values()))))
    timed = [name for name in calls if name == "auto" or once[name] < HOPELESS * min(once.values())]
    found = []
    for turn in range(number):
        order = [timed[(place + turn) % len(timed)] for place in range(len(timed))]
        if turn % 2:  # each follows each as often
            order.reverse()
        found.append({**once, **{name: _seconds(calls[name], device, repeats) for name in order}})
    return found


def _seconds(call: Callable[[], Any], device: torch.device, repeats: int = 1) -> float:
    call()  # the way before it has filled the caches with what is its own
    _wait_for(device)
    began_s = time.perf_counter()
    for _ in range(repeats):
        call()
    _wait_for(device)
    return (time.perf_counter() - began_s) / repeats


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def summarize(rounds: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Medians of rounds, in which each way took so many seconds; see `small_table_crossover`."""
    medians = {name: statistics.median(times[name] for times in rounds) for name in rounds[0]}
    best = min(("matmul", "scatter"), key=medians.__getitem__)
    ratio = statistics.median(times["auto"] / times[best] for times in rounds)
    in_us = {f"{name}_us": round(median * 1e6, 1) for name, median in medians.items()}
    return {**in_us, "best": best, "auto_vs_best": round(ratio, 3)}
