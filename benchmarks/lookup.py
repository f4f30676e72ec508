"""What each way to save in a lookup saves: two ranks, joined by a link of 100 Mbit/s.

Counts (collectives, bytes) are exact, and of batches of the demo's real window. Times are ratios within a round of
alternated steps, medians over rounds; a frozen step against one that adapts is a whole step of `Workload`, the others
are lookups alone.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
from torchrec.distributed.types import ShardingEnv
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from tqdm import tqdm

from benchmarks.crossover import small_table_crossover
from benchmarks.hosts import add_rank_options, limit_bandwidth, report_rank, run_ranks
from benchmarks.report import publish
from benchmarks.rounds import order_of
from benchmarks.workload import Network, Workload, cycle, loss_of
from pipelines.recipes import find_recipe
from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader
from trainer.embeddings.collections import ShardedCollection
from trainer.embeddings.exchange import Precision
from trainer.embeddings.lookup import CANDIDATE, PIN_TABLE, USER, USER_TABLE, Ids, Lookup, ids_of, look_up
from trainer.embeddings.sharded import ShardedTables
from trainer.recipe import Recipe
from trainer.windows.manifest import load_partition
from trainer.windows.preparation import prepare_day

STORE = ".thawline"
FIRST_DAY, NUM_DAYS = date(2017, 11, 1), 3
CPU = torch.device("cpu")
BATCH_ROWS = 2048  # of both ranks; a feed's batches are larger than the demo's
NUM_MICRO_BATCHES = 4
BYTES_PER_S = 12.5e6  # 100 Mbit/s
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")
Step = Callable[[], None]


def _batches(recipe: Recipe, number: int, rank: int) -> list[Ids]:
    days = [prepare_day(recipe, FIRST_DAY + timedelta(days=index), STORE) for index in range(NUM_DAYS)]
    columns = Columns.read([load_partition(day) for day in days], recipe)
    reader = SlateReader(columns, batch_rows=BATCH_ROWS, seed=0, rank=rank, num_ranks=2)
    return [ids_of(batch, recipe.tables) for batch in islice(reader.epoch(0), number)]


def _tables(recipe: Recipe, precision: Precision = "fp32") -> ShardedTables:
    return ShardedTables(recipe.tables, learning_rate=0.02, device=CPU, seed=None, precision=precision)


def _step(lookup: Lookup, ids: Any, *, adapting: bool = True) -> None:
    rows = look_up(lookup, ids, adapting=adapting)
    if adapting:
        torch.autograd.backward(list(rows.values()), [torch.ones_like(of_site) for of_site in rows.values()])
        lookup.settle()


class _Training:
    """Whole steps of `Workload`: rows looked up, the network, gradients, updates of all that trains."""

    def __init__(self, workload: Workload) -> None:
        self._tables = ShardedTables(workload.tables, learning_rate=0.02, device=CPU, seed=None)
        self._batches, self._network = cycle(workload.batches(4, rank=dist.get_rank())), Network(workload)
        self._adam = torch.optim.Adam(self._network.parameters(), fused=True)

    def step(self, *, adapting: bool) -> None:
        """One, with the tables frozen or adapting."""
        batch = next(self._batches)
        self._adam.zero_grad()
        rows = look_up(self._tables, batch.plain_ids, adapting=adapting)
        torch.autograd.backward(loss_of(self._network, rows, batch))
        self._adam.step()


def _counted(recipe: Recipe, ids: Ids) -> dict[str, float]:
    """What does not depend on a clock."""
    tables = _tables(recipe)

    def of(*steps: Ids, adapting: bool = True) -> tuple[int, int]:
        tables.take_traffic()
        for step in steps:
            _step(tables, step, adapting=adapting)
        traffic = tables.take_traffic()
        return traffic.num_collectives, traffic.num_bytes

    fused = of(ids)
    separate = of(*({site: rows_N} for site, rows_N in ids.items()))
    parts = [{site: rows_N.tensor_split(NUM_MICRO_BATCHES)[part] for site, rows_N in ids.items()} for part in range(4)]
    # Each id that leaves, if each travelled for itself: its number, its row and its gradient.
    row_bytes = 4 + 2 * 4 * recipe.tables.dim
    each = sum(_num_leaving(recipe, site, rows_N) for site, rows_N in ids.items()) * row_bytes
    found = {
        "collectives_fused": fused[0],
        "collectives_separate": separate[0],
        "bytes_separate_vs_fused": separate[1] / fused[1],
        "dedup_bytes_ratio": fused[1] / each,
        "accumulated_exchanges_ratio": fused[0] / of(*parts)[0],
        "accumulated_bytes_ratio": fused[1] / of(*parts)[1],
        "frozen_bytes_ratio": of(ids, adapting=False)[1] / fused[1],
    }
    for precision in PRECISIONS[1:]:
        tables = _tables(recipe, precision)
        found[f"bytes_{precision}_vs_fp32"] = of(ids)[1] / fused[1]
    return found


def _num_leaving(recipe: Recipe, site: str, rows_N: Tensor) -> int:
    num_rows = recipe.tables.num_user_rows if site == USER else recipe.tables.num_pin_rows
    rank_N = rows_N // -(-num_rows // 2)
    return int((rank_N != dist.get_rank()).sum())


def _bags(recipe: Recipe) -> ShardedCollection:
    """TorchRec's pooled collection: it exchanges lengths, sends a row for each id and pools."""
    sizes = {USER_TABLE: (recipe.tables.num_user_rows, USER), PIN_TABLE: (recipe.tables.num_pin_rows, CANDIDATE)}
    collection = EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=recipe.tables.dim, feature_names=[site])
            for name, (rows, site) in sizes.items()
        ],
        device=torch.device("meta"),
    )
    apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": 0.02})
    plan = construct_module_sharding_plan(
        collection,
        {table: row_wise(compute_kernel="fused") for table in sizes},
        sharder=EmbeddingBagCollectionSharder(),
        world_size=2,
        local_size=2,
        device_type="cpu",
    )
    env = ShardingEnv.from_process_group(cast(dist.ProcessGroup, dist.group.WORLD))
    return ShardedCollection(EmbeddingBagCollectionSharder().shard(collection, plan, env, device=CPU))


def _cases(recipe: Recipe, batches: Sequence[Ids]) -> dict[str, Step]:
    """What is timed, a step at a time."""
    ours, bags, training, turn = _tables(recipe), _bags(recipe), _Training(Workload(num_layers=2)), count()
    num_rows = min(len(ids[USER]) for ids in batches)
    num_rows = int(_smallest_of_ranks(num_rows))
    ones = torch.ones(2 * num_rows, dtype=torch.int32)
    singles = [{site: ids[site][:num_rows] for site in (USER, CANDIDATE)} for ids in batches]
    jagged = [
        KeyedJaggedTensor(keys=[USER, CANDIDATE], values=torch.cat(list(ids.values())), lengths=ones) for ids in singles
    ]

    def pick(of: Sequence[Any]) -> Any:
        return of[next(turn) % len(of)]

    def separate() -> None:
        for site, rows_N in pick(batches).items():
            _step(ours, {site: rows_N})

    return {
        "singleton": lambda: _step(ours, pick(singles)),
        "general": lambda: _step(bags, pick(jagged)),
        "fused": lambda: _step(ours, pick(batches)),
        "separate": separate,
        "frozen": lambda: training.step(adapting=False),
        "cotrain": lambda: training.step(adapting=True),
    }


def _smallest_of_ranks(value: int) -> int:
    found = torch.tensor(value)
    dist.all_reduce(found, dist.ReduceOp.MIN)
    return int(found)


def _timed_ms(step: Step, num_steps: int) -> float:
    dist.barrier()
    began_s = time.perf_counter()
    for _ in range(num_steps):
        step()
    return (time.perf_counter() - began_s) * 1000 / num_steps


def _run_rank(out: Path, *, num_rounds: int, num_steps: int, has_link: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    recipe = find_recipe("complete_journey")
    batches = _batches(recipe, 8, dist.get_rank())
    counted = _counted(recipe, batches[0])
    cases = _cases(recipe, batches)
    if has_link:
        limit_bandwidth(dist.get_rank(), BYTES_PER_S)
    for step in cases.values():
        _timed_ms(step, 2)
    rounds = []
    for number in tqdm(range(num_rounds), desc="lookup", unit="round", disable=dist.get_rank() > 0):
        rounds.append({name: _timed_ms(cases[name], num_steps) for name in order_of(list(cases), number)})
    report_rank(out, {"counted": counted, "rounds": rounds})


def summarize(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over ranks of what was counted, medians over rounds of what was timed."""
    counted = {name: statistics.fmean(rank["counted"][name] for rank in ranks) for name in ranks[0]["counted"]}
    rounds = [
        {name: statistics.fmean(of[name] for of in of_ranks) for name in of_ranks[0]}
        for of_ranks in zip(*(rank["rounds"] for rank in ranks), strict=True)
    ]

    def ratio(case: str, other: str) -> float:
        return statistics.median(of[case] / of[other] for of in rounds)

    return {
        **counted,
        "collectives_ratio": counted["collectives_separate"] / counted["collectives_fused"],
        "singleton_ratio": ratio("singleton", "general"),
        "fused_vs_separate": ratio("fused", "separate"),
        "frozen_step_vs_cotrain_step": ratio("frozen", "cotrain"),
        "step_ms": {name: statistics.median(of[name] for of in rounds) for name in rounds[0]},
    }


def main() -> None:
    """Starts the two ranks, measures small tables in this process, and publishes both."""
    parser = argparse.ArgumentParser(prog="make bench-lookup", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the rounds")
    add_rank_options(parser)
    options = parser.parse_args()
    num_rounds, num_steps = (4 if options.quick else 16), 10
    if options.rank_of is not None:
        _run_rank(options.rank_of, num_rounds=num_rounds, num_steps=num_steps, has_link=options.has_link)
        return
    ranks, hosts = run_ranks("benchmarks.lookup", ["--quick"] if options.quick else [])
    figures = {**summarize(ranks), "link": "two hosts" if hosts.link else f"loopback: {hosts.why_not}"}
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    setting = {"batch_rows": BATCH_ROWS, "num_rounds": num_rounds, "num_steps": num_steps}
    small_tables = small_table_crossover(CPU)
    rounded["small_table_auto_vs_best"] = small_tables["small_table_auto_vs_best"]
    publish("lookup", {**rounded, **setting, "small_tables": small_tables}, quick=options.quick)


if __name__ == "__main__":
    main()
