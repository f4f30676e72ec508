"""Stale training written out by hand, on every kind of tables, beside the same training through the pipeline.

Shape suffixes: N ids of a call site, B samples, D width of a row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise, table_wise
from torchrec.distributed.types import ShardingEnv
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from trainer.embeddings.collections import ShardedCollection
from trainer.embeddings.lookup import CANDIDATE, HISTORY, PIN_TABLE, USER, USER_TABLE, Ids, Lookup, Rows, look_up
from trainer.embeddings.sharded import ShardedTables
from trainer.recipe import TablesConfig
from trainer.semisync.forward import Mode, PrefetchingForward
from trainer.semisync.lookahead import Lookahead

CPU = torch.device("cpu")
CONFIG = TablesConfig(num_user_rows=11, num_pin_rows=17, dim=4)
SITES = {USER: USER_TABLE, CANDIDATE: PIN_TABLE, HISTORY: PIN_TABLE}
NUM_ROWS = {USER_TABLE: CONFIG.num_user_rows, PIN_TABLE: CONFIG.num_pin_rows}
RATE = 0.5
KINDS = ("ours", "sequence/row_wise", "sequence/table_wise", "pooled/row_wise", "pooled/table_wise")
NUM_BATCHES = 7

Adapts = Callable[[int], bool]


def make_lookup(kind: str, *, can_refresh: bool = False) -> Lookup:
    """Tables of a kind, alike whenever they are made."""
    if kind == "ours":
        return ShardedTables(CONFIG, learning_rate=RATE, device=CPU, seed=1, can_refresh=can_refresh)
    pooled, sharding = kind.split("/")
    if pooled == "pooled":
        collection: Any = EmbeddingBagCollection(tables=[_config(EmbeddingBagConfig, table) for table in NUM_ROWS])
        sharder: Any = EmbeddingBagCollectionSharder()
    else:
        collection = EmbeddingCollection(tables=[_config(EmbeddingConfig, table) for table in NUM_ROWS])
        sharder = EmbeddingCollectionSharder()
    apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": RATE})
    world_size = dist.get_world_size()
    places = {
        table: row_wise(compute_kernel="fused")
        if sharding == "row_wise"
        else table_wise(rank=number % world_size, compute_kernel="fused")
        for number, table in enumerate(NUM_ROWS)
    }
    plan = construct_module_sharding_plan(
        collection, places, sharder=sharder, world_size=world_size, local_size=world_size, device_type="cpu"
    )
    env = ShardingEnv.from_process_group(cast(dist.ProcessGroup, dist.group.WORLD))
    return ShardedCollection(sharder.shard(collection, plan, env, device=CPU))


def _config(kind: Any, table: str) -> Any:
    sites = [site for site, of in SITES.items() if of == table]
    return kind(
        name=table, num_embeddings=NUM_ROWS[table], embedding_dim=CONFIG.dim, feature_names=sites, init_fn=_first_rows
    )


def _first_rows(shard: Tensor) -> None:
    shard.data.copy_(torch.randn(shard.shape, generator=torch.Generator().manual_seed(1)))


def make_batches(first: int = 0, number: int = NUM_BATCHES) -> list[KeyedJaggedTensor]:
    """This rank's batches: few rows, so that batches share ids; some samples have no ids, as has one batch."""
    found = []
    for batch in range(first, first + number):
        generator = torch.Generator().manual_seed(100 * batch + dist.get_rank())
        num_samples = 5
        lengths = torch.randint(0, 4, (len(SITES), num_samples), generator=generator, dtype=torch.int32)
        if batch == 3:
            lengths.zero_()
        values = [
            torch.randint(NUM_ROWS[table], (int(lengths[site].sum()),), generator=generator)
            for site, table in enumerate(SITES.values())
        ]
        found.append(KeyedJaggedTensor(keys=list(SITES), values=torch.cat(values), lengths=lengths.flatten()))
    return found


def ids_for(kind: str, ids: KeyedJaggedTensor) -> Any:
    """Ids as the tables of a kind want them."""
    return plain(ids) if kind == "ours" else ids


def plain(ids: KeyedJaggedTensor) -> Ids:
    """Ids by call site, without lengths."""
    return {site: ids[site].values() for site in ids.keys()}  # noqa: SIM118, it is no mapping


class Network:
    """A small network, which learns beside the tables; the loss of a batch depends on all that came before."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(2)
        self.weight = torch.randn(CONFIG.dim, generator=generator).requires_grad_()
        self.losses: list[float] = []

    def step(self, rows: Rows) -> None:
        """Leaves gradients on the rows, and learns."""
        loss = torch.stack([(values @ self.weight).tanh().square().sum() for values in rows.values()]).sum()
        (gradient,) = torch.autograd.grad(loss, self.weight, retain_graph=True)
        torch.autograd.backward(loss, inputs=[leaf for leaf in rows.values() if leaf.requires_grad] or [self.weight])
        self.losses.append(float(loss.detach()))
        with torch.no_grad():
            self.weight -= 0.1 * gradient
        self.weight.grad = None


def by_hand(lookup: Lookup, passes: Iterable[Sequence[Any]], network: Network, adapts: Adapts) -> None:
    """Batch B reads the state after update B-2: before the one update that is due is made. No pipeline, no thread."""
    for batches in passes:
        due: tuple[Any, list[Tensor]] | None = None
        for number, ids in enumerate(batches):
            if due is not None and not (adapts(number) and adapts(number - 1)):
                _make_update(lookup, *due)  # drained: nothing is read across a thaw or a freeze
                due = None
            read = look_up(lookup, ids, adapting=False)
            if due is not None:
                _make_update(lookup, *due)
                due = None
            leaves = {site: values.clone().requires_grad_(adapts(number)) for site, values in read.items()}
            network.step(leaves)
            if adapts(number):
                due = ids, [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves.values()]
        if due is not None:
            _make_update(lookup, *due)


def _make_update(lookup: Lookup, ids: Any, gradients: list[Tensor]) -> None:
    rows = look_up(lookup, ids, adapting=True)
    torch.autograd.backward(list(rows.values()), gradients)
    lookup.settle()


def through_pipeline(
    lookup: Lookup,
    passes: Iterable[Sequence[Any]],
    network: Network,
    adapts: Adapts,
    *,
    mode: Mode,
    depth: int = 2,
) -> None:
    """The same through `PrefetchingForward`."""
    forward = PrefetchingForward(lookup, mode=mode, device=CPU, depth=depth)
    for batches in passes:
        for step in forward.steps(Lookahead(batches, lambda ids: ids), adapts=adapts):
            network.step(step.rows)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What to compare, to the bit: losses, the network, and rows as lookups of this rank give them."""

    losses: list[float]
    weight: list[float]
    rows: list[list[float]]


def trained(kind: str, mode: str, phase: str, depth: int = 2) -> Trained:
    """Two passes on this rank; ``mode`` is a mode of the pipeline, or ``by_hand``."""
    lookup, network = make_lookup(kind, can_refresh=mode == "exact"), Network()
    passes = [[ids_for(kind, ids) for ids in make_batches(first=first)] for first in (0, NUM_BATCHES)]
    adapts = PHASES[phase]
    if mode == "by_hand":
        by_hand(lookup, passes, network, adapts)
    else:
        through_pipeline(lookup, passes, network, adapts, mode=cast(Mode, mode), depth=depth)
    return Trained(losses=network.losses, weight=network.weight.tolist(), rows=list(_all_rows(kind, lookup)))


PHASES: dict[str, Adapts] = {
    "adapting": lambda number: True,
    "frozen": lambda number: False,
    "thaw": lambda number: number >= 4,
    "freeze": lambda number: number < 4,
}


def _all_rows(kind: str, lookup: Lookup) -> Iterator[list[float]]:
    """Every row of every table, one id a sample."""
    longest = max(NUM_ROWS.values())
    values, lengths = [], []
    for table in SITES.values():
        values.append(torch.arange(NUM_ROWS[table]))
        lengths.append((torch.arange(longest) < NUM_ROWS[table]).int())
    ids = KeyedJaggedTensor(keys=list(SITES), values=torch.cat(values), lengths=torch.cat(lengths))
    for rows in look_up(lookup, ids_for(kind, ids), adapting=False).values():
        yield rows.flatten().tolist()
