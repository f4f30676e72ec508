"""What isolating gradients costs: a step through each named arm's routes against the open matrix, and the open gate's.

Steps run on the demo's sizes and on batches of its real window, tables adapting. In each round every case runs the same
steps, one case after another, in an order that turns from round to round; a ratio is taken within a round, and its
median over the rounds is given, so that a machine that slows down meanwhile slows all cases alike.
"""

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date, timedelta
from itertools import islice
from typing import Any, get_args

import torch
from tqdm import tqdm

from benchmarks.report import publish
from benchmarks.rounds import order_of
from pipelines.recipes import find_recipe
from trainer.batches.batch import Batch
from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader
from trainer.dense_optimizer import DenseOptimizer, Group
from trainer.embeddings.lookup import ids_of, look_up
from trainer.embeddings.sharded import ShardedTables
from trainer.model.losses import RankingObjective
from trainer.model.ranker import Ranker
from trainer.recipe import Recipe, RouteArm
from trainer.runs import process_group
from trainer.thaw.arms import plan_of
from trainer.thaw.gate import Gate
from trainer.thaw.schedule import GroupSchedule
from trainer.windows.manifest import load_partition
from trainer.windows.preparation import prepare_day

NO_GATE, OPEN = "no_gate", "open"
CASES: tuple[str, ...] = (NO_GATE, OPEN, *get_args(RouteArm))
STORE = ".thawline"
FIRST_DAY, NUM_DAYS = date(2017, 11, 1), 5


class Steps:
    """Training steps on batches that are kept in memory."""

    def __init__(self, recipe: Recipe, batches: Sequence[Batch], device: torch.device) -> None:
        torch.manual_seed(recipe.training.seed)
        self._recipe, self._batches = recipe, [batch.to(device) for batch in batches]
        self._objective = RankingObjective(Ranker(recipe).to(device), recipe.losses, num_ranks=1)
        rate = recipe.groups.tables.learning_rate
        self._tables = ShardedTables(recipe.tables, learning_rate=rate, device=device, seed=recipe.training.seed)
        schedule = GroupSchedule.of(recipe.groups.network, num_epochs=1)
        self._optimizer = DenseOptimizer([Group(parameters=list(self._objective.parameters()), schedule=schedule)])

    def time_ms(self, case: str) -> float:
        """Milliseconds a step, over all batches."""
        gate = _gate(self._recipe, case)
        began_s = time.perf_counter()
        for batch in self._batches:
            self._step(batch, gate)
        return (time.perf_counter() - began_s) * 1000 / len(self._batches)

    def _step(self, batch: Batch, gate: Gate | None) -> None:
        ids = ids_of(batch, self._recipe.tables)
        rows = look_up(self._tables, ids, adapting=True)
        self._optimizer.begin_step(0.0)
        if gate is None:
            losses = self._objective(batch, rows)
            torch.autograd.backward(torch.stack(list(losses.values())).sum())
        else:
            passage = gate.open(rows, ids, 0.0, adapting=True)
            passage.backward(self._objective(batch, passage.rows))
        self._tables.settle()
        self._optimizer.step()


def _gate(recipe: Recipe, case: str) -> Gate | None:
    if case == NO_GATE:
        return None
    return Gate() if case == OPEN else Gate(plan_of(recipe.override({"thaw.arm": case})).routes)


def summarize(rounds: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """One entry a case: medians of its milliseconds a step and of its ratios, and how far the ratios spread.

    The open gate is set against no gate, every other case against the open gate.
    """
    return [_summary(rounds, case, NO_GATE if case in (NO_GATE, OPEN) else OPEN) for case in CASES]


def _summary(rounds: Sequence[Mapping[str, float]], case: str, against: str) -> dict[str, Any]:
    ratios = [times[case] / times[against] for times in rounds]
    return {
        "case": case,
        "step_ms": round(statistics.median(times[case] for times in rounds), 3),
        "against": against,
        "ratio": round(statistics.median(ratios), 4),
        "ratio_low": round(min(ratios), 4),
        "ratio_high": round(max(ratios), 4),
    }


def _batches(recipe: Recipe, number: int) -> list[Batch]:
    days = [prepare_day(recipe, FIRST_DAY + timedelta(days=index), STORE) for index in range(NUM_DAYS)]
    columns = Columns.read([load_partition(day) for day in days], recipe)
    reader = SlateReader(columns, batch_rows=recipe.training.batch_rows, seed=recipe.training.seed)
    return list(islice(reader.epoch(0), number))


def main() -> None:
    """Times the cases and publishes what they cost."""
    parser = argparse.ArgumentParser(prog="make bench-routes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the work: seconds, and less sure")
    quick = parser.parse_args().quick
    num_steps, num_rounds = (5, 8) if quick else (10, 16)
    recipe = find_recipe("complete_journey")
    batches = _batches(recipe, num_steps)
    with process_group(alone=True) as device:
        steps = Steps(recipe, batches, device)
        for case in CASES:
            steps.time_ms(case)  # the first calls of each path are slower
        rounds = [
            {case: steps.time_ms(case) for case in order_of(CASES, number)}
            for number in tqdm(range(num_rounds), desc="routes", unit="round")
        ]
    results = summarize(rounds)
    for entry in results:
        print(f"{entry['case']:<18} {entry['step_ms']:7.2f} ms a step, {entry['ratio']:.3f} of {entry['against']}")
    setting = {"num_steps": num_steps, "num_rounds": num_rounds, "batch_rows": recipe.training.batch_rows}
    figures = {"results": results, **setting, "tables": asdict(recipe.tables), "device": str(device)}
    publish("routes", figures, quick=quick)


if __name__ == "__main__":
    main()
