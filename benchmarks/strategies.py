"""Every way to adapt the tables, side by side on the same windows, judged against one co-trained pass.

A case is one window of the real log, or one seed of the synthetic feed (a world of its own for each). In a case all
variants start from the same backbone, read the same rows and are judged on the same held-out days after the window;
passes that two of them share are made once. A lift is relative; over the cases of a dataset it is given with Student's
t interval. The tables of ``docs/results.md`` are written from the same figures.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from multiprocessing import get_context
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from benchmarks.page import write_pages
from benchmarks.report import publish
from benchmarks.strategies_summary import Outcome, lines, summarize
from pipelines.recipes import find_recipe
from trainer.batches.columns import Columns
from trainer.model.backbone import Backbone, pretrained_part
from trainer.recipe import Recipe
from trainer.runs import Passes, Run, evaluate, pretrain, process_group, train
from trainer.thaw.variants import recipe_of
from trainer.windows.manifest import Partition, load_partition
from trainer.windows.preparation import prepare_day
from trainer.windows.sources.synthetic import SyntheticConfig, synthesize, true_save_probability

STORE = ".thawline"

# Variants that share their first passes stand together: each pass is made once a case.
MAIN = ("single_epoch", "cotrain", "adapt_then_freeze", "frozen", "delayed", "meda")
THREE_PASSES = ("delayed*3", "meda*3")
ROUTES = ("contrastive_only", "no_contrastive", "head_only", "pairwise_only", "candidate_only", "history_only")
REMEDIES = ("frequency_lr", "adam_ar", "slow_tables", "row_dropout", "row_decay", "min_count")
OURS = ("frequency_thaw", "cotrain+guard")
THAW_CURVE = ("delayed@0.5", "delayed@1.5")
VLM = ("single_epoch", "frozen", "delayed")

# A held-out week, where a retrain holds out a day: the question is the variant, and seven days answer it with less
# noise.
NUM_HELDOUT_DAYS = 7
# Windows of the real log follow each other backwards from its last full week; no two share a held-out day.
LAST_DAY = date(2017, 12, 24)
STRIDE_DAYS = 21
NUM_WINDOWS = 9
WIDE_WINDOWS = range(0, NUM_WINDOWS, 2)  # trained by every variant; remedies were tuned on two of the others
QUICK_WINDOWS = range(6)

# Small, with strong tastes and, as in the real log, a few impressions a pin; seeds that no setting was chosen on.
FEED = SyntheticConfig(num_users=1500, num_pins=12_000, num_fresh_pins=120, rows_per_day=3000, taste=3.5)
SEEDS = range(10, 15)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One window, or one synthetic feed, and the variants that are trained on it."""

    dataset: str
    window_days: int
    first_day: date
    seed: int
    variants: tuple[str, ...]


def cases(*, quick: bool) -> list[Case]:
    """The cases of a run, the longest first: the quick one asks the main question only."""
    if quick:
        return [real_window(20, number, (*MAIN, *THREE_PASSES)) for number in QUICK_WINDOWS]
    arms = (*MAIN, *OURS, *ROUTES, *REMEDIES)
    wide = (*MAIN, *THREE_PASSES, *OURS, *ROUTES, *REMEDIES)
    narrow = sorted(set(range(NUM_WINDOWS)) - set(WIDE_WINDOWS))
    return [
        *(real_window(20, number, (*wide, *THAW_CURVE)) for number in WIDE_WINDOWS),
        *(_feed("synthetic", 20, seed, wide) for seed in SEEDS),
        *(real_window(10, number, arms) for number in WIDE_WINDOWS),
        *(_feed("synthetic", 10, seed, arms) for seed in SEEDS),
        *(_feed("synthetic_vlm", 20, seed, VLM) for seed in SEEDS),
        *(real_window(20, number, (*MAIN, *THREE_PASSES)) for number in narrow),
    ]


def real_window(window_days: int, number: int, variants: tuple[str, ...]) -> Case:
    """One of the windows of the real log, 0 the latest."""
    last_day = LAST_DAY - timedelta(days=NUM_HELDOUT_DAYS + number * STRIDE_DAYS)
    first_day = last_day - timedelta(days=window_days - 1)
    return Case(
        dataset="complete_journey", window_days=window_days, first_day=first_day, seed=number, variants=variants
    )


def _feed(dataset: str, window_days: int, seed: int, variants: tuple[str, ...]) -> Case:
    first_day = FEED.first_day + timedelta(days=find_recipe("synthetic").backbone.num_days)
    return Case(dataset=dataset, window_days=window_days, first_day=first_day, seed=seed, variants=variants)


@dataclass(frozen=True, kw_only=True)
class CaseRows:
    """The recipe of a case, the rows before its window, those of the window and those held out."""

    recipe: Recipe
    earlier: Columns
    window: Columns
    heldout: Columns


def read_case(case: Case) -> CaseRows:
    """Prepares a case's days and reads them."""
    recipe = _recipe(case)
    before = case.first_day - timedelta(days=recipe.backbone.num_days)
    after = case.first_day + timedelta(days=case.window_days)
    return CaseRows(
        recipe=recipe,
        earlier=_columns(recipe, before, recipe.backbone.num_days),
        window=_columns(recipe, case.first_day, case.window_days),
        heldout=_heldout(case, recipe, after),
    )


def run_case(case: Case) -> list[Outcome]:
    """Makes a case's backbone, and trains and judges every variant."""
    rows = read_case(case)
    with process_group(alone=True) as device:
        backbone = backbone_of(pretrain(rows.recipe, rows.earlier, device=device))
        passes: Passes = {}
        outcomes = []
        for variant in case.variants:
            recipe = recipe_of(rows.recipe, variant)
            # Judged once, at the end: as each pass ends would be half as many scorings again.
            run = train(recipe, rows.window, None, backbone, device=device, passes=passes)
            judged = evaluate(recipe, run.ranker, run.tables, rows.heldout, shown=rows.window, device=device)
            outcomes.append(_outcome(variant, run, judged))
        return outcomes


def _recipe(case: Case) -> Recipe:
    seed = {"training.seed": str(case.seed)}
    if case.dataset == "complete_journey":
        return find_recipe("complete_journey").override(seed)
    recipe = find_recipe("synthetic").override(seed)
    # Worlds differ by seed; both window lengths, with and without media, read the same one.
    uri = f"{STORE}/logs/bench-synthetic-{case.seed}-{case.window_days}"
    synthesize(_feed_of(case, recipe), uri)
    settings = {"logs.uri": uri} | ({"vlm.encoder": "builtin"} if case.dataset == "synthetic_vlm" else {})
    return recipe.override(settings)


def _feed_of(case: Case, recipe: Recipe) -> SyntheticConfig:
    num_days = recipe.backbone.num_days + case.window_days + NUM_HELDOUT_DAYS
    return replace(FEED, num_days=num_days, seed=case.seed)


def _columns(recipe: Recipe, first: date, num_days: int) -> Columns:
    return Columns.read(_partitions(recipe, first, num_days), recipe)


def _partitions(recipe: Recipe, first: date, num_days: int) -> list[Partition]:
    days = [first + timedelta(days=index) for index in range(num_days)]
    return [load_partition(prepare_day(recipe, day, STORE)) for day in days]


def _heldout(case: Case, recipe: Recipe, first: date) -> Columns:
    """The held-out rows; those of a synthetic feed are labelled with the known probability of a save.

    Metrics are then expected over all draws of the labels. What one draw of some thousand slates adds is noise many
    times the size of the differences between variants.
    """
    columns = _columns(recipe, first, NUM_HELDOUT_DAYS)
    if case.dataset == "complete_journey":
        return columns
    days = _partitions(recipe, first, NUM_HELDOUT_DAYS)
    paths = [file for day in days for file in day.files]
    rows = pa.concat_tables(pq.read_table(path, columns=["user_id", "pin_id", "ts", "position"]) for path in paths)
    labels = columns.labels.copy()
    labels[:, 0] = true_save_probability(_feed_of(case, recipe), rows)
    return replace(columns, labels=labels)


def backbone_of(run: Run) -> Backbone:
    """What a pretraining run made; whole on rank 0."""
    dense = {name: tensor.clone() for name, tensor in pretrained_part(run.ranker).items()}
    return Backbone(rows=run.tables.rows(), state=run.tables.state(), dense=dense)


def _outcome(variant: str, run: Run, judged: Mapping[str, float]) -> Outcome:
    epochs = run.history.epochs
    return Outcome(
        variant=variant,
        heldout=dict(judged),
        train_s=sum(epoch.duration_s for epoch in epochs),
        num_row_gradients=sum(epoch.num_row_gradients for epoch in epochs),
        self_influence=epochs[-2].canary["self_influence"] if len(epochs) > 1 else 0.0,
        loss_jump=epochs[-1].canary["loss_jump"],
        refrozen_at=run.history.refrozen_at,
    )


def main() -> None:
    """Runs the cases on all cores and publishes their summary."""
    parser = argparse.ArgumentParser(prog="make bench-strategies", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="the main variants on the real log: minutes, not most of an hour"
    )
    quick = parser.parse_args().quick
    wanted = cases(quick=quick)
    outcomes = _run_all(wanted)
    figures = summarize({case: outcomes[case] for case in wanted})
    for line in lines(figures):
        print(line)
    records = [{**_as_json(case), "arms": [asdict(outcome) for outcome in outcomes[case]]} for case in wanted]
    publish("strategies", {**figures, "cases": records}, quick=quick)
    if not quick:
        write_pages()


def _run_all(wanted: Sequence[Case]) -> dict[Case, list[Outcome]]:
    outcomes: dict[Case, list[Outcome]] = {}
    os.environ["TQDM_DISABLE"] = "1"  # for the processes of the pool, whose bars would overwrite this one's
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_case, case): case for case in wanted}
        for future in tqdm(as_completed(futures), total=len(futures), desc="strategies", unit="case"):
            outcomes[futures[future]] = future.result()
    return outcomes


def _as_json(case: Case) -> dict[str, Any]:
    return {
        "dataset": case.dataset,
        "window_days": case.window_days,
        "first_day": case.first_day.isoformat(),
        "seed": case.seed,
    }


if __name__ == "__main__":
    main()
