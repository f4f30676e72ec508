"""How a step grows: with the rows of its tables, its batch, its histories and its ranks, synchronous and not.

One size varies at a time, the others stay. Ranks share this machine and loopback: more of them than cores take turns,
so the times of four ranks tell about contention, not about a cluster. An exponent is the slope of a line through the
logarithms: 0 does not grow, 1 grows in proportion.
"""

import argparse
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from benchmarks.hosts import add_rank_options, report_rank, run_ranks
from benchmarks.report import publish, result_path
from benchmarks.workload import Network, Samples, Workload, cycle, loss_of
from trainer.embeddings.sharded import ShardedTables
from trainer.semisync.forward import Mode, PrefetchingForward
from trainer.semisync.lookahead import Lookahead

CPU = torch.device("cpu")
# A token of our ranker is twice as wide as a row: these are the tokens of tables 32 wide.
BASE = Workload(num_rows=100_000, dim=64, batch_rows=128, history_length=50, num_layers=1)
SIZES: dict[str, tuple[int, ...]] = {
    "num_rows": (10_000, 100_000, 1_000_000, 10_000_000),
    "batch_rows": (32, 128, 512),
    "history_length": (20, 50, 100, 200, 500),
}
RANKS = (1, 2, 4)
MODES: tuple[Mode, ...] = ("sync", "semi")


def points() -> list[tuple[str, Workload]]:
    """What is measured on each number of ranks: the size that varies, and the workload."""
    return [(name, replace(BASE, **{name: size})) for name, sizes in SIZES.items() for size in sizes]


def _measure(workload: Workload, *, num_rounds: int, num_steps: int) -> dict[str, dict[str, float]]:
    """Medians of both modes on this rank, alternated."""
    batches = workload.batches(4, rank=dist.get_rank())
    loops = {mode: _Loop(workload, batches, mode) for mode in MODES}
    for loop in loops.values():
        loop.run(2)
    rounds = [{mode: loop.run(num_steps) for mode, loop in loops.items()} for _ in range(num_rounds)]
    found: dict[str, dict[str, float]] = {
        mode: {name: statistics.median(of[mode][name] for of in rounds) for name in rounds[0][mode]} for mode in MODES
    }
    for of_mode in found.values():
        of_mode["peak_rss_mib"] = _peak_rss_mib()
    return found


def _forget_peak_rss() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_rss_mib() -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


class _Loop:
    def __init__(self, workload: Workload, batches: list[Samples], mode: Mode) -> None:
        self._tables = ShardedTables(workload.tables, learning_rate=0.02, device=CPU, seed=None)
        network: nn.Module = Network(workload)
        self._network = DistributedDataParallel(network) if dist.get_world_size() > 1 else network
        self._adam = torch.optim.Adam(self._network.parameters(), fused=True)
        self._forward = PrefetchingForward(self._tables, mode=mode, device=CPU)
        self._steps = self._forward.steps(Lookahead(cycle(batches), lambda batch: batch.plain_ids))

    def run(self, num_steps: int) -> dict[str, float]:
        """Milliseconds and bytes a step, once the pipeline is filled."""
        dist.barrier()
        self._step()
        self._forward.take_evidence(), self._tables.take_traffic()
        began_s = time.perf_counter()
        for _ in range(num_steps):
            self._step()
        step_ms = (time.perf_counter() - began_s) * 1000 / num_steps
        evidence, traffic = self._forward.take_evidence(), self._tables.take_traffic()
        exposed_ms = 1000 * evidence.exposed_s / num_steps
        return {"step_ms": step_ms, "exposed_ms": exposed_ms, "bytes_a_step": traffic.num_bytes / num_steps}

    def _step(self) -> None:
        step = next(self._steps)
        self._adam.zero_grad()
        torch.autograd.backward(loss_of(self._network, step.rows, step.batch))
        self._adam.step()


def _run_rank(out: Path, *, num_rounds: int, num_steps: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = []
    title = f"{dist.get_world_size()} ranks"
    for _, workload in tqdm(points(), title, unit="point", disable=dist.get_rank() != 0):
        _forget_peak_rss()
        found.append(_measure(workload, num_rounds=num_rounds, num_steps=num_steps))
    report_rank(out, {"points": found})


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Slope of values over sizes, both as logarithms."""
    slope: float = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return float(slope)


def growth(entries: Sequence[Mapping[str, Any]], varies: str, figure: str, *, num_ranks: int, mode: Mode) -> float:
    """The exponent of a figure over the sizes that vary."""
    place = (varies, num_ranks, mode)
    chosen = [entry for entry in entries if (entry["varies"], entry["num_ranks"], entry["mode"]) == place]
    return round(exponent([entry["size"] for entry in chosen], [entry[figure] for entry in chosen]), 4)


def exponents(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Growth of a step with each size in each mode, for each number of ranks."""
    return {
        f"{num_ranks}_ranks": {
            f"{name}_{mode}": growth(entries, name, "step_ms", num_ranks=num_ranks, mode=mode)
            for name in SIZES
            for mode in MODES
        }
        for num_ranks in RANKS
    }


def headline(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What is asked of growth; steps on one rank, where nobody takes turns, and lookups on two, where rows travel."""
    alone = partial(growth, entries, num_ranks=1, mode="semi")
    # A synchronous step waits for all of its lookup.
    together = partial(growth, entries, num_ranks=2, mode="sync")
    return {
        "rows_exponent": alone("num_rows", "step_ms"),
        "history_exponent": alone("history_length", "step_ms"),
        "history_lookup_exponent": together("history_length", "exposed_ms"),
        "history_bytes_exponent": together("history_length", "bytes_a_step"),
    }


def plot(entries: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Step time over each size, a line for each mode and number of ranks."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, len(SIZES), figsize=(5 * len(SIZES), 4), sharey=True, layout="constrained")
    for axes, name in zip(all_axes, SIZES, strict=True):
        for num_ranks in RANKS:
            for mode, style in zip(MODES, ("-", "--"), strict=True):
                chosen = [
                    entry
                    for entry in entries
                    if (entry["varies"], entry["num_ranks"], entry["mode"]) == (name, num_ranks, mode)
                ]
                sizes, times = [entry["size"] for entry in chosen], [entry["step_ms"] for entry in chosen]
                color = f"C{RANKS.index(num_ranks)}"
                axes.plot(sizes, times, style, marker="o", color=color, label=f"{num_ranks} ranks, {mode}")
        axes.set(xscale="log", yscale="log", xlabel=name)
        axes.set_xticks(SIZES[name], [f"{size:,}" for size in SIZES[name]])
        axes.set_xticks([], minor=True)
    all_axes[0].set_ylabel("step, ms")
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Measures every size on every number of ranks, and publishes times, exponents and a plot."""
    parser = argparse.ArgumentParser(prog="make bench-scaling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a third of the rounds")
    add_rank_options(parser)
    options = parser.parse_args()
    if options.rank_of is not None:
        # Ranks that take turns on a core are slow, and no exponent is theirs.
        num_steps = 8 // int(os.environ["WORLD_SIZE"])
        _run_rank(options.rank_of, num_rounds=2 if options.quick else 6, num_steps=num_steps)
        return
    entries = []
    for num_ranks in RANKS:
        quick = ["--quick"] if options.quick else []
        ranks, _ = run_ranks("benchmarks.scaling", quick, number=num_ranks, wants_link=False)
        for index, (varies, workload) in enumerate(points()):
            for mode in MODES:
                found = [rank["points"][index][mode] for rank in ranks]
                means = {name: round(statistics.fmean(of[name] for of in found), 3) for name in found[0]}
                place = {"varies": varies, "size": getattr(workload, varies), "num_ranks": num_ranks, "mode": mode}
                entries.append({**place, **means})
    plot(entries, result_path("scaling.png", quick=options.quick))
    result = {**headline(entries), "exponents": exponents(entries), "results": entries, "base": asdict(BASE)}
    publish("scaling", result, quick=options.quick)


if __name__ == "__main__":
    main()
