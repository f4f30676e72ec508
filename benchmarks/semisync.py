"""What the semi-synchronous pipeline hides: two ranks on two hosts, joined by a link that lookups and gradients fill.

Every way to train runs the same steps on the same batches, one way after another in a round, in an order that turns
from round to round; a ratio is taken within a round, and its median over the rounds is given. The bandwidth is set
from what the step costs alone, so that a synchronous step spends a little more than a quarter on forward lookups, on a
fast machine and a slow one alike. The limit is the larger of two times: computing alone, on both ranks at once,
each with whole tables and nothing to send; and the bytes that a rank sends, divided by the bandwidth.
"""

import argparse
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrec import EmbeddingCollection, EmbeddingConfig
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
from torchrec.distributed.train_pipeline import TrainPipelineBase, TrainPipelineSparseDist
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from tqdm import tqdm

from benchmarks.bare_loop import LocalTables, loop_vs_bare
from benchmarks.hosts import add_rank_options, limit_bandwidth, report_rank, run_ranks
from benchmarks.report import publish
from benchmarks.rounds import order_of
from benchmarks.workload import Network, Samples, Workload, cycle, loss_of
from trainer.embeddings.collections import ShardedCollection
from trainer.embeddings.lookup import CANDIDATE, HISTORY, PIN_TABLE, SITES_OF_TABLE, USER, USER_TABLE, Lookup
from trainer.embeddings.sharded import ShardedTables, SharedIds
from trainer.semisync.evidence import Meter
from trainer.semisync.forward import Mode, PrefetchingForward
from trainer.semisync.lookahead import Lookahead

CPU = torch.device("cpu")
RATE = 0.02
_NUM_TRIALS = 5
_NICE = 19
_NUM_EVIDENCE_STEPS = 1600
LOOKUP_SHARE = 0.26  # of a synchronous step, that its forward lookups are to take on the link
COMPUTE, SYNC, SEMI, EXACT = "compute", "sync", "semi", "exact"
SAME_TABLES, BASE, SPARSE_DIST = "semi_on_torchrec_tables", "torchrec_base", "torchrec_sparse_dist"
CASES = (COMPUTE, SYNC, SEMI, EXACT, SAME_TABLES, BASE, SPARSE_DIST)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A case's steps in one round, on this rank."""

    step_ms: float
    lookup_ms: float = 0.0
    exposed_ms: float = 0.0


class TracedModel(nn.Module):
    """Tables and network as one module, for TorchRec's pipelines."""

    def __init__(self, collection: EmbeddingCollection, network: Network) -> None:
        super().__init__()
        self.collection = collection
        self.network = network

    def forward(self, batch: Samples) -> Any:
        """The loss twice: to minimise and to look at."""
        rows = self.collection(batch.ids)
        loss = self.network(rows[USER].values(), rows[CANDIDATE].values(), rows[HISTORY].values(), batch.labels)
        return loss, loss.detach()


class Ours:
    """Steps through `PrefetchingForward`."""

    def __init__(self, lookup: Lookup, network: nn.Module, batches: list[Samples], *, mode: Mode) -> None:
        self._forward = PrefetchingForward(lookup, mode=mode, device=CPU)
        self._network, self._adam = network, torch.optim.Adam(network.parameters(), fused=True)
        takes_jagged = isinstance(lookup, ShardedCollection)
        self._steps = self._forward.steps(
            Lookahead(cycle(batches), lambda batch: batch.ids if takes_jagged else batch.plain_ids)
        )

    def step(self) -> None:
        """One step; the update of the one before it is sent on its way first."""
        step = next(self._steps)
        self._adam.zero_grad()
        torch.autograd.backward(loss_of(self._network, step.rows, step.batch))
        self._adam.step()

    def take_ms(self) -> dict[str, float]:
        """Milliseconds of lookups a step, since the last call."""
        found = self._forward.take_evidence()
        if not found.num_steps:
            return {}
        per_step = 1000 / found.num_steps
        return {"lookup_ms": found.lookup_s * per_step, "exposed_ms": found.exposed_s * per_step}


class TorchRec:
    """Steps through a pipeline of TorchRec's."""

    def __init__(self, pipeline: Any, model: nn.Module, batches: list[Samples]) -> None:
        network = [value for name, value in model.named_parameters() if "collection" not in name]
        self._pipeline = pipeline(model, torch.optim.Adam(network, fused=True), CPU)
        self._batches = cycle(batches)

    def step(self) -> None:
        """One step."""
        self._pipeline.progress(self._batches)

    def take_ms(self) -> dict[str, float]:
        """TorchRec tells nothing."""
        return {}


def _collection(workload: Workload) -> EmbeddingCollection:
    tables = [
        EmbeddingConfig(
            name=table,
            num_embeddings=workload.num_rows,
            embedding_dim=workload.dim,
            feature_names=list(SITES_OF_TABLE[table]),
        )
        for table in (USER_TABLE, PIN_TABLE)
    ]
    collection = EmbeddingCollection(tables=tables, device=torch.device("meta"))
    apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": RATE})
    return collection


def _plan(collection: EmbeddingCollection) -> Any:
    return construct_module_sharding_plan(
        collection,
        {table: row_wise(compute_kernel="fused") for table in (USER_TABLE, PIN_TABLE)},
        sharder=EmbeddingCollectionSharder(),
        world_size=2,
        local_size=2,
        device_type="cpu",
    )


def _on_torchrec_tables(workload: Workload) -> ShardedCollection:
    collection = _collection(workload)
    env = ShardingEnv.from_process_group(cast(dist.ProcessGroup, dist.new_group()))
    return ShardedCollection(EmbeddingCollectionSharder().shard(collection, _plan(collection), env, device=CPU))


def _parallel_model(workload: Workload) -> nn.Module:
    model = TracedModel(_collection(workload), Network(workload))
    parallel: nn.Module = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(cast(dist.ProcessGroup, dist.group.WORLD)),
        device=CPU,
        plan=ShardingPlan(plan={"collection": _plan(model.collection)}),
        sharders=[EmbeddingCollectionSharder()],
    )
    return parallel


def _ours(workload: Workload, batches: list[Samples], mode: Mode) -> tuple[Ours, ShardedTables]:
    tables = ShardedTables(workload.tables, learning_rate=RATE, device=CPU, seed=None, can_refresh=mode == "exact")
    return Ours(tables, DistributedDataParallel(Network(workload)), batches, mode=mode), tables


def _run_rank(workload: Workload, out: Path, *, num_rounds: int, num_steps: int, has_link: bool) -> None:
    """What each rank executes: sets the link, runs the rounds, writes what it saw."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batches = workload.batches(8, rank=rank)
    local = LocalTables(workload.tables, learning_rate=RATE)
    loops: dict[str, Ours | TorchRec] = {COMPUTE: Ours(local, Network(workload), batches, mode="sync")}
    loops[SYNC], tables = _ours(workload, batches, "sync")
    loops[SEMI], _ = _ours(workload, batches, "semi")
    loops[EXACT], _ = _ours(workload, batches, "exact")
    network = DistributedDataParallel(Network(workload))
    loops[SAME_TABLES] = Ours(_on_torchrec_tables(workload), network, batches, mode="semi")
    loops[BASE] = TorchRec(TrainPipelineBase, _parallel_model(workload), batches)
    loops[SPARSE_DIST] = TorchRec(TrainPipelineSparseDist, _parallel_model(workload), batches)
    for name in CASES:
        _timed(loops[name], 2)
    # Cores compute here what a GPU would; they yield to the threads that communicate, which began before this.
    os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    tables.take_traffic()
    _timed(loops[SYNC], num_steps)
    network_bytes = sum(value.numel() * value.element_size() for value in network.parameters())
    num_bytes = tables.take_traffic().num_bytes / (num_steps + 1) + network_bytes
    bandwidth = _set_bandwidth(rank, loops, num_bytes, num_steps) if has_link else None
    rounds = []
    for number in tqdm(range(num_rounds), desc="semisync", unit="round", disable=rank > 0):
        rounds.append({name: asdict(_timed(loops[name], num_steps)) for name in order_of(CASES, number)})
    evidence_ms = _evidence_ms(tables, batches)
    found = {"rounds": rounds, "evidence_ms": evidence_ms, "num_bytes": num_bytes, "bandwidth_bytes_per_s": bandwidth}
    report_rank(out, found)


def _set_bandwidth(rank: int, loops: Mapping[str, Ours | TorchRec], num_bytes: float, num_steps: int) -> float:
    """Narrows the link until a synchronous step spends the wanted share on forward lookups; bytes a second."""
    compute_s = _agreed(statistics.median(_timed(loops[COMPUTE], num_steps).step_ms for _ in range(3)) / 1000)
    link_s = compute_s / 2
    for _ in range(_NUM_TRIALS):
        limit_bandwidth(rank, num_bytes / link_s)
        trial = _timed(loops[SYNC], 2 * num_steps)
        share = _agreed(trial.exposed_ms / trial.step_ms)
        # Of the time on the link about half is the lookups'; what they take beside it does not change.
        missing_s = (LOOKUP_SHARE - share) * _agreed(trial.step_ms) / 1000
        link_s = max(link_s / 3, link_s + missing_s / (0.5 * (1 - LOOKUP_SHARE)))
    limit_bandwidth(rank, num_bytes / link_s)
    return num_bytes / link_s


def _timed(loop: Ours | TorchRec, num_steps: int) -> Timed:
    """Milliseconds a step, once the pipeline is filled."""
    dist.barrier()
    loop.step()
    loop.take_ms()
    began_s = time.perf_counter()
    for _ in range(num_steps):
        loop.step()
    step_ms = (time.perf_counter() - began_s) * 1000 / num_steps
    found = Timed(step_ms=step_ms, **loop.take_ms())
    time.sleep(0.05)  # what it still has on its way is not the next one's
    return found


def _evidence_ms(tables: ShardedTables, batches: Sequence[Samples]) -> float:
    """What taking evidence costs a step: its clocks and counters alone, over many steps.

    Whole steps with and without it differ by less than they vary.
    """
    meter, slots = Meter(CPU), [tables.send(batch.plain_ids).slots_T for batch in batches]
    shared = SharedIds()
    began_s = time.perf_counter()
    for number in range(_NUM_EVIDENCE_STEPS):
        with meter.exposed():
            pass
        for _ in range(2):  # ids, rows
            with meter.lookup():
                pass
        meter.step()
        shared.add(slots[number % len(slots)])
    meter.take(), shared.take()
    return (time.perf_counter() - began_s) * 1000 / _NUM_EVIDENCE_STEPS


def _agreed(value: float) -> float:
    """Rank 0's value, on all ranks."""
    shared = [value]
    dist.broadcast_object_list(shared)
    return shared[0]


def summarize(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians over rounds, of means over ranks."""
    rounds = [_mean_of_ranks(rounds) for rounds in zip(*(rank["rounds"] for rank in ranks), strict=True)]
    num_bytes = statistics.fmean(rank["num_bytes"] for rank in ranks)
    bandwidth = ranks[0]["bandwidth_bytes_per_s"]
    link_ms = 1000 * num_bytes / bandwidth if bandwidth else 0.0

    def ratio(case: str, other: str) -> float:
        return statistics.median(of[case]["step_ms"] / of[other]["step_ms"] for of in rounds)

    return {
        "hidden_share": statistics.median(1 - of[SEMI]["exposed_ms"] / of[SYNC]["exposed_ms"] for of in rounds),
        "lookup_share_of_sync": statistics.median(of[SYNC]["exposed_ms"] / of[SYNC]["step_ms"] for of in rounds),
        "step_vs_sync": ratio(SEMI, SYNC),
        "exact_vs_sync": ratio(EXACT, SYNC),
        "step_vs_torchrec_base": ratio(SEMI, BASE),
        "step_vs_torchrec_sparse_dist": ratio(SEMI, SPARSE_DIST),
        "same_tables_vs_torchrec_sparse_dist": ratio(SAME_TABLES, SPARSE_DIST),
        "step_vs_limit": statistics.median(of[SEMI]["step_ms"] / max(of[COMPUTE]["step_ms"], link_ms) for of in rounds),
        "stats_cost": statistics.fmean(rank["evidence_ms"] for rank in ranks)
        / statistics.median(of[SEMI]["step_ms"] for of in rounds),
        "link_ms": link_ms,
        "link_mbit_per_s": bandwidth * 8 / 1e6 if bandwidth else None,
        "bytes_a_step": num_bytes,
        "step_ms": {case: statistics.median(of[case]["step_ms"] for of in rounds) for case in CASES},
    }


def _mean_of_ranks(ranks: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        case: {name: statistics.fmean(rank[case][name] for rank in ranks) for name in ranks[0][case]} for case in CASES
    }


def main() -> None:
    """Starts the two ranks, measures our loop against a bare one, and publishes both."""
    parser = argparse.ArgumentParser(prog="make bench-semisync", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the rounds: a minute, and less sure")
    add_rank_options(parser)
    options = parser.parse_args()
    num_rounds, num_steps = (2 if options.quick else 6), 5
    workload = Workload()
    if options.rank_of is not None:
        _run_rank(workload, options.rank_of, num_rounds=num_rounds, num_steps=num_steps, has_link=options.has_link)
        return
    ranks, hosts = run_ranks("benchmarks.semisync", ["--quick"] if options.quick else [])
    figures = {**summarize(ranks), "link": "two hosts" if hosts.link else f"loopback: {hosts.why_not}"}
    # As in a real pass, several steps to each of the 20 points of its curve.
    figures |= loop_vs_bare(num_rounds=3 * num_rounds, num_steps=50)
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    setting = {"workload": asdict(workload), "num_rounds": num_rounds, "num_steps": num_steps}
    publish("semisync", {**rounded, **setting}, quick=options.quick)


if __name__ == "__main__":
    main()
