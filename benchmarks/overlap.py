"""Whether lookups run beside the network on a GPU, read from a profiler's trace; plain torch.

Shape suffixes: N ids of a batch, D width of a row, W width of the network.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.order import SITE, PlainTable
from trainer.semisync.forward import PrefetchingForward
from trainer.semisync.lookahead import Lookahead

NUM_ROWS, NUM_IDS, DIM = 2**20, 2**17, 64
WIDTH, NUM_LAYERS = 2048, 8
NUM_BATCHES = 12

Span = tuple[float, float]


def measure_overlap(trace: Path) -> dict[str, float]:
    """Runs semi-synchronous steps on a GPU under the profiler and writes its trace.

    Returns:
        ``overlapped_share``, see `overlap`; ``lookup_kernels_ms`` and ``network_kernels_ms``, time of the kernels on
        either stream; ``hidden_share``, the pipeline's own evidence; ``trace_mib``.
    """
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(0)
    table = PlainTable(torch.randn(NUM_ROWS, DIM, generator=generator, device=device))
    weights = torch.randn(2, WIDTH, WIDTH, generator=generator, device=device) / WIDTH**0.5
    batches = [
        torch.randperm(NUM_ROWS, generator=generator, device=device)[:NUM_IDS].contiguous() for _ in range(NUM_BATCHES)
    ]
    forward = PrefetchingForward(table, mode="semi", device=device)
    _steps(forward, batches, weights)  # the first calls load kernels
    forward.take_evidence()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        _steps(forward, batches, weights)
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(trace))
    found = overlap(json.loads(trace.read_text())["traceEvents"])
    return {
        **found,
        "hidden_share": round(forward.take_evidence().hidden_share, 3),
        "trace_mib": round(trace.stat().st_size / 2**20, 2),
    }


def _steps(forward: PrefetchingForward, batches: Sequence[Tensor], weights: Tensor) -> None:
    """A network whose kernels take some ten times as long as the lookups'."""
    mixing_WW, state_WW = weights
    for step in forward.steps(Lookahead(batches, lambda ids_N: {SITE: ids_N})):
        for _ in range(NUM_LAYERS):
            state_WW = (state_WW @ mixing_WW).tanh()
        rows_ND = step.rows[SITE]
        torch.autograd.backward((rows_ND * state_WW[0, :DIM]).sum(dim=1).tanh().sum())


def overlap(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """How long kernels of the lane's stream ran, and for how much of that a kernel of the network's stream ran too.

    Args:
        events: Of a trace in Chrome's format. The network's stream is the one whose kernels took longest.

    Returns:
        ``overlapped_share`` of the lookups' kernels in [0, 1], 0 without a second stream; ``lookup_kernels_ms`` and
        ``network_kernels_ms``.
    """
    spans: dict[int, list[Span]] = {}
    for event in events:
        if event.get("cat") == "kernel":
            spans.setdefault(event["args"]["stream"], []).append((event["ts"], event["ts"] + event["dur"]))
    by_stream = sorted((_union(of_stream) for of_stream in spans.values()), key=_length, reverse=True)
    network, lookups = by_stream[0] if by_stream else [], _union(span for spans in by_stream[1:] for span in spans)
    beside = sum(max(0.0, min(end, other[1]) - max(begin, other[0])) for begin, end in lookups for other in network)
    return {
        "overlapped_share": round(beside / _length(lookups), 3) if lookups else 0.0,
        "lookup_kernels_ms": round(_length(lookups) / 1000, 3),
        "network_kernels_ms": round(_length(network) / 1000, 3),
    }


def _union(spans: Iterable[Span]) -> list[Span]:
    """The same times without those that are counted twice."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)
