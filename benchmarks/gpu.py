"""What only a GPU can show: the order of reads and updates, their overlap with the network, small tables' gradients.

Needs one NVIDIA GPU, plain torch and a minute; neither FBGEMM nor TorchRec.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.crossover import fit_crossover, small_table_crossover
from benchmarks.order import check_order
from benchmarks.overlap import measure_overlap
from benchmarks.report import publish

NUM_TRIALS = 5
DIMS = (16, 64, 256)
MAX_AUTO_VS_BEST = 1.05


def failures(figures: Mapping[str, Any]) -> list[str]:
    """What is wrong, a line each."""
    found = [f"order: {check} does not hold" for check, holds in figures["order"].items() if not holds]
    if figures["overlap"]["overlapped_share"] <= 0:
        found.append("overlap: no kernel of a lookup ran beside the network's")
    ratio, fitted = figures["small_table_auto_vs_best"], figures["fitted_crossover"]
    if ratio > MAX_AUTO_VS_BEST:
        found.append(
            f"crossover: small tables took {ratio} times as long as the faster way, above {MAX_AUTO_VS_BEST}; "
            f"CUDA_CROSSOVER of trainer/embeddings/small.py should be {fitted}"
        )
    return found


def main() -> None:
    """Checks, measures and publishes; exits with 1 when a check fails, with 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="make bench-gpu", description=__doc__)
    parser.add_argument("--trace", type=Path, help="where to keep the profiler's trace, which Perfetto opens")
    keep = parser.parse_args().trace
    if not torch.cuda.is_available():
        print("bench-gpu needs an NVIDIA GPU, and torch sees none: nothing was measured", file=sys.stderr)
        sys.exit(2)
    device = torch.device("cuda")
    order = check_order(device, num_trials=NUM_TRIALS)
    print(f"order: {order}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        overlap = measure_overlap(keep or Path(folder) / "trace.json")
    print(f"overlap: {overlap}", flush=True)
    crossovers = [small_table_crossover(device, dim=dim) for dim in DIMS]
    figures = {
        "device": torch.cuda.get_device_name(device),
        "cuda": torch.version.cuda,
        "order": order,
        "overlap": overlap,
        "small_table_auto_vs_best": max(found["small_table_auto_vs_best"] for found in crossovers),
        "fitted_crossover": fit_crossover(crossovers),
        "crossovers": crossovers,
    }
    wrong = failures(figures)
    for line in wrong:
        print(line)
    publish("gpu", figures)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
