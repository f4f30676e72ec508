"""How a step grows: with the rows of its tables, its batch, its histories and its ranks, synchronous and not.

One size varies at a time, the others stay. Ranks share this machine and loopback: more of them than cores take turns,
so the times of four ranks tell about contention, not about a cluster. An exponent is the slope of a line through the
logarithms: 0 does not grow, 1 grows in proportion.
"""

import argparse
import os
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from benchmarks.hosts import add_rank_options, report_rank, run_ranks
from benchmarks.report import RESULTS, publish
from benchmarks.workload import Network, Samples, Workload, cycle, loss_of
from trainer.embeddings.sharded import ShardedTables
from trainer.semisync.forward import Mode, PrefetchingForward
from trainer.semisync.lookahead import Lookahead

CPU = torch.device("cpu")
BASE = Workload(num_rows=100_000, dim=16, batch_rows=128, history_length=50, num_layers=1)
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
        of_mode["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


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


def _run_rank(out: Path, index: int, *, num_rounds: int, num_steps: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    _, workload = points()[index]
    report_rank(out, _measure(workload, num_rounds=num_rounds, num_steps=num_steps))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Slope of values over sizes, both as logarithms."""
    slope: float = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return float(slope)


def exponents(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Growth of the synchronous and the semi-synchronous step with each size, on one rank."""
    found = {}
    for name in SIZES:
        alone = [entry for entry in entries if entry["varies"] == name and entry["num_ranks"] == 1]
        for mode in MODES:
            of_mode = [entry for entry in alone if entry["mode"] == mode]
            sizes, times = [entry["size"] for entry in of_mode], [entry["step_ms"] for entry in of_mode]
            found[f"{name}_exponent_{mode}"] = round(exponent(sizes, times), 4)
    return found


def plot(entries: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Step time over each size, a line for each mode and number of ranks."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(1, len(SIZES), figsize=(5 * len(SIZES), 4), layout="constrained")
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
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel="step, ms")
    all_axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Measures every size on every number of ranks, and publishes times, exponents and a plot."""
    parser = argparse.ArgumentParser(prog="make bench-scaling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a third of the rounds")
    parser.add_argument("--point", type=int, help=argparse.SUPPRESS)
    add_rank_options(parser)
    options = parser.parse_args()
    if options.rank_of is not None:
        # Ranks that take turns on a core are slow, and no exponent is theirs.
        num_steps = 8 // int(os.environ["WORLD_SIZE"])
        _run_rank(options.rank_of, options.point, num_rounds=2 if options.quick else 6, num_steps=num_steps)
        return
    entries = []
    wanted = [(num_ranks, index) for num_ranks in RANKS for index in range(len(points()))]
    for num_ranks, index in tqdm(wanted, desc="scaling", unit="point"):
        varies, workload = points()[index]
        quick = ["--quick"] if options.quick else []
        ranks, _ = run_ranks("benchmarks.scaling", ["--point", str(index), *quick], number=num_ranks, wants_link=False)
        for mode in MODES:
            means = {name: statistics.fmean(rank[mode][name] for rank in ranks) for name in ranks[0][mode]}
            place = {"varies": varies, "size": getattr(workload, varies), "num_ranks": num_ranks, "mode": mode}
            entries.append({**place, **{name: round(value, 3) for name, value in means.items()}})
    plot(entries, RESULTS / "scaling.png")
    found = exponents(entries)
    headline = {
        "rows_exponent": found["num_rows_exponent_semi"],
        "history_exponent": found["history_length_exponent_semi"],
    }
    publish("scaling", {**headline, **found, "results": entries, "base": asdict(BASE)}, quick=options.quick)


if __name__ == "__main__":
    main()
