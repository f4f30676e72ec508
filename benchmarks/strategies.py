"""The arms side by side on the same windows, each judged against ``single_epoch``.

A case is one window (of the real log) or one seed (of the synthetic log, a feed of its own for each). In a case all
arms start from the same backbone, read the same rows and are judged on the same held-out days after the window. A lift
is relative; over the cases of a dataset it is given with Student's t interval.
"""

import argparse
import os
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from multiprocessing import get_context
from typing import Any, get_args

import torch
from tqdm import tqdm

from benchmarks.report import publish
from pipelines.recipes import find_recipe
from trainer.batches.columns import Columns
from trainer.evaluation.lift import mean_interval
from trainer.model.backbone import Backbone, pretrained_part
from trainer.recipe import Arm, Recipe
from trainer.runs import Run, pretrain, process_group, train
from trainer.windows.manifest import load_partition
from trainer.windows.preparation import prepare_day
from trainer.windows.sources.synthetic import SyntheticConfig, synthesize

ARMS: tuple[Arm, ...] = get_args(Arm)
BASELINE: Arm = "single_epoch"
STORE = ".thawline"

# A held-out week, where a retrain holds out a day: the question is the arm, and seven days answer it with less noise.
NUM_HELDOUT_DAYS = 7
# Windows of the real log follow each other backwards from its last full week, so that no two share a held-out day.
LAST_DAY = date(2017, 12, 24)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One window, or one synthetic feed, on which all arms are trained."""

    dataset: str
    window_days: int
    first_day: date
    seed: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one arm reached in one case."""

    arm: Arm
    save_auc: float
    save_hit3: float
    train_s: float


def cases(*, quick: bool) -> list[Case]:
    """The cases of a run: the quick one asks the main question only."""
    if quick:
        return _windows(window_days=20, number=6)
    real = [case for days in (10, 20) for case in _windows(window_days=days, number=9)]
    return real + [case for days in (10, 20) for case in _feeds(window_days=days, number=5)]


def _windows(*, window_days: int, number: int) -> list[Case]:
    stride = timedelta(days=20 + NUM_HELDOUT_DAYS)
    ends = [LAST_DAY - timedelta(days=NUM_HELDOUT_DAYS) - index * stride for index in range(number)]
    return [
        Case(dataset="complete_journey", window_days=window_days, first_day=_first(end, window_days), seed=index)
        for index, end in enumerate(ends)
    ]


def _feeds(*, window_days: int, number: int) -> list[Case]:
    end = SyntheticConfig().first_day + timedelta(days=find_recipe("synthetic").backbone.num_days + window_days - 1)
    return [
        Case(dataset="synthetic", window_days=window_days, first_day=_first(end, window_days), seed=seed)
        for seed in range(number)
    ]


def _first(last_day: date, num_days: int) -> date:
    return last_day - timedelta(days=num_days - 1)


def run_case(case: Case) -> list[Outcome]:
    """Prepares a case's days, makes its backbone, and trains and judges every arm."""
    recipe = _recipe(case)
    before = case.first_day - timedelta(days=recipe.backbone.num_days)
    after = case.first_day + timedelta(days=case.window_days)
    with process_group(alone=True) as device:
        backbone = _backbone(pretrain(recipe, _columns(recipe, before, recipe.backbone.num_days), device=device))
        window = _columns(recipe, case.first_day, case.window_days)
        heldout = _columns(recipe, after, NUM_HELDOUT_DAYS)
        return [_judge(arm, recipe, window, heldout, backbone, device) for arm in ARMS]


def _recipe(case: Case) -> Recipe:
    recipe = find_recipe(case.dataset).override({"training.seed": str(case.seed)})
    if case.dataset == "synthetic":
        uri = f"{STORE}/logs/synthetic-{case.seed}-{case.window_days}"
        num_days = recipe.backbone.num_days + case.window_days + NUM_HELDOUT_DAYS
        synthesize(SyntheticConfig(num_days=num_days, seed=case.seed), uri)
        recipe = recipe.override({"logs.uri": uri})
    return recipe


def _columns(recipe: Recipe, first: date, num_days: int) -> Columns:
    days = [first + timedelta(days=index) for index in range(num_days)]
    partitions = [load_partition(prepare_day(recipe, day, STORE)) for day in days]
    return Columns.read(partitions, recipe)


def _backbone(run: Run) -> Backbone:
    dense = {name: tensor.clone() for name, tensor in pretrained_part(run.ranker).items()}
    return Backbone(rows=run.tables.rows(), state=run.tables.state(), dense=dense)


def _judge(
    arm: Arm, recipe: Recipe, window: Columns, heldout: Columns, backbone: Backbone, device: torch.device
) -> Outcome:
    began_s = time.perf_counter()
    run = train(replace(recipe, thaw=replace(recipe.thaw, arm=arm)), window, heldout, backbone, device=device)
    metrics = run.history.epochs[-1].heldout
    return Outcome(
        arm=arm,
        save_auc=metrics["save_auc"],
        save_hit3=metrics["save_hit3"],
        train_s=round(time.perf_counter() - began_s, 2),
    )


def summarize(outcomes: Mapping[Case, list[Outcome]]) -> list[dict[str, Any]]:
    """One entry a dataset, window length and arm: lifts against the baseline, paired by case."""
    groups = sorted({_group(case) for case in outcomes})
    return [
        _summary([of_case for case, of_case in outcomes.items() if _group(case) == group], *group, arm)
        for group in groups
        for arm in ARMS
    ]


def _group(case: Case) -> tuple[str, int]:
    return case.dataset, case.window_days


def _summary(of_cases: list[list[Outcome]], dataset: str, window_days: int, arm: Arm) -> dict[str, Any]:
    pairs = [({o.arm: o for o in outcomes}[arm], {o.arm: o for o in outcomes}[BASELINE]) for outcomes in of_cases]
    auc_lift = mean_interval([mine.save_auc / base.save_auc - 1 for mine, base in pairs])
    hit_lift = mean_interval([mine.save_hit3 / base.save_hit3 - 1 for mine, base in pairs])
    return {
        "dataset": dataset,
        "window_days": window_days,
        "arm": arm,
        "n": len(pairs),
        "auc_lift": _as_mean(asdict(auc_lift)),
        "save_hit3_lift": _as_mean(asdict(hit_lift)),
        "save_auc": sum(mine.save_auc for mine, _ in pairs) / len(pairs),
        "train_s": sum(mine.train_s for mine, _ in pairs) / len(pairs),
    }


def _as_mean(interval: dict[str, float]) -> dict[str, float]:
    return {"mean": interval["point"], "low": interval["low"], "high": interval["high"]}


def main() -> None:
    """Runs the cases on all cores and publishes their summary."""
    parser = argparse.ArgumentParser(prog="make bench-strategies", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20-day windows of the real log only: minutes, not hours")
    wanted = cases(quick=parser.parse_args().quick)
    outcomes: dict[Case, list[Outcome]] = {}
    os.environ["TQDM_DISABLE"] = "1"  # for the processes of the pool, whose bars would overwrite this one's
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_case, case): case for case in wanted}
        for future in tqdm(as_completed(futures), total=len(futures), desc="strategies", unit="case"):
            outcomes[futures[future]] = future.result()
    results = summarize({case: outcomes[case] for case in wanted})
    for entry in results:
        print(_line(entry))
    publish("strategies", {"results": results, "cases": [_record(case, outcomes[case]) for case in wanted]})


def _record(case: Case, of_case: list[Outcome]) -> dict[str, Any]:
    return {**asdict(case), "first_day": case.first_day.isoformat(), "arms": [asdict(outcome) for outcome in of_case]}


def _line(entry: Mapping[str, Any]) -> str:
    def percent(lift: Mapping[str, float]) -> str:
        return f"{lift['mean']:+.2%} [{lift['low']:+.2%}, {lift['high']:+.2%}]"

    place = f"{entry['dataset']} {entry['window_days']}d {entry['arm']:<18}"
    return f"{place} AUC {percent(entry['auc_lift'])}  HIT@3-save {percent(entry['save_hit3_lift'])}  n={entry['n']}"


if __name__ == "__main__":
    main()
