"""What staleness and rounding cost in quality: `delayed` on windows of the real log, on two ranks that share loopback.

Each window is trained once synchronously, which is what the others are set against: with rows at most one update stale,
and so with rows that travel in fewer bits. Differences are relative and paired by window; over the windows they are
given with Student's t interval.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.hosts import add_rank_options, report_rank, run_ranks
from benchmarks.report import publish
from benchmarks.strategies import WIDE_WINDOWS, Case, backbone_of, read_case, real_window
from trainer.evaluation.lift import mean_interval
from trainer.runs import pretrain, process_group, train

SYNC = "sync"
LOOKUPS: dict[str, dict[str, str]] = {
    SYNC: {"lookup.mode": "sync"},
    "semi": {"lookup.mode": "semi"},
    "semi_fp16": {"lookup.mode": "semi", "lookup.precision": "fp16"},
    "semi_bf16": {"lookup.mode": "semi", "lookup.precision": "bf16"},
    "semi_int8": {"lookup.mode": "semi", "lookup.precision": "int8"},
}
METRICS = ("save_auc", "save_hit3", "save_log_loss")


def _train_case(case: Case, device: torch.device) -> dict[str, dict[str, float]]:
    """Held-out metrics by lookup; on rank 0."""
    if dist.get_rank() == 0:
        read_case(case)  # prepares the days, once
    dist.barrier()
    rows = read_case(case)
    recipe = rows.recipe.override({"training.num_ranks": str(dist.get_world_size()), "thaw.arm": "delayed"})
    shared = [backbone_of(pretrain(recipe, rows.earlier, device=device))]
    dist.broadcast_object_list(shared)
    found = {}
    for name, settings in LOOKUPS.items():
        run = train(recipe.override(settings), rows.window, rows.heldout, shared[0], device=device)
        found[name] = dict(run.history.epochs[-1].heldout)
        if dist.get_rank() == 0:
            print(f"window from {case.first_day}: {name} done", file=sys.stderr, flush=True)
    return found


def summarize(cases: Sequence[Mapping[str, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """One entry a lookup: relative differences to the synchronous one, and how wide the interval of the AUC's is."""
    entries = []
    for name in LOOKUPS:
        if name == SYNC:
            continue
        entry: dict[str, Any] = {"lookup": name, "n": len(cases)}
        for metric in METRICS:
            differences = [case[name][metric] / case[SYNC][metric] - 1 for case in cases]
            entry[f"{metric}_difference"] = asdict(mean_interval(differences))
        interval = entry["save_auc_difference"]
        entry["auc_interval_width"] = interval["high"] - interval["low"]
        entries.append(entry)
    return entries


def main() -> None:
    """Trains every window with every lookup, and publishes the differences."""
    parser = argparse.ArgumentParser(prog="make bench-staleness", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two windows, of ten days: does it run at all")
    add_rank_options(parser)
    options = parser.parse_args()
    days, numbers = (10, list(WIDE_WINDOWS)[:2]) if options.quick else (20, list(WIDE_WINDOWS))
    if options.rank_of is not None:
        with process_group() as device:
            cases = [_train_case(real_window(days, number, ()), device) for number in numbers]
            report_rank(options.rank_of, {"cases": cases})
    os.environ["TQDM_DISABLE"] = "1"  # a bar for each of 25 runs on two ranks says little
    ranks, _ = run_ranks("benchmarks.staleness", ["--quick"] if options.quick else [], wants_link=False)
    cases = ranks[0]["cases"]
    entries = summarize(cases)
    for entry in entries:
        auc = entry["save_auc_difference"]
        print(f"{entry['lookup']:<10} AUC {auc['point']:+.3%} [{auc['low']:+.3%}, {auc['high']:+.3%}]")
    publish("staleness", {"results": entries, "cases": cases, "window_days": days}, quick=options.quick)


if __name__ == "__main__":
    main()
