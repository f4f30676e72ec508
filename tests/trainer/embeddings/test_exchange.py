"""What travels between ranks, against TorchRec's own collections, and in fewer bits.

Shape suffixes: B samples, D width of a row.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torchrec import KeyedJaggedTensor

from tests.trainer.conftest import Ranks
from tests.trainer.semisync.stale import CONFIG, CPU, NUM_ROWS, RATE, SITES, make_lookup, plain
from trainer.embeddings.exchange import Precision
from trainer.embeddings.lookup import CANDIDATE, HISTORY, USER, Rows, look_up
from trainer.embeddings.sharded import ShardedTables

ON_RANKS = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@dataclass(frozen=True)
class Shape:
    """Of random lookups: a seed, samples of each rank, and the most ids of a sample; few rows make many duplicates."""

    seed: int
    num_samples: tuple[int, int]
    max_ids: int


SHAPES = st.builds(
    Shape,
    seed=st.integers(0, 999),
    num_samples=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    max_ids=st.integers(0, 6),
)


def ids_of(shape: Shape, step: int, *, singletons: bool = False) -> KeyedJaggedTensor:
    """This rank's ids."""
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(1000 * shape.seed + 10 * step + rank)
    number = shape.num_samples[rank]
    sizes = (len(SITES), number)
    lengths = torch.ones(sizes) if singletons else torch.randint(0, shape.max_ids + 1, sizes, generator=generator)
    values = [
        torch.randint(NUM_ROWS[table], (int(of_site.sum()),), generator=generator)
        for table, of_site in zip(SITES.values(), lengths, strict=True)
    ]
    return KeyedJaggedTensor(keys=list(SITES), values=torch.cat(values), lengths=lengths.flatten().int())


def ours_as(theirs: Any, precision: Precision = "fp32") -> ShardedTables:
    """Our tables, with the rows of a sharded collection of TorchRec's."""
    tables = ShardedTables(CONFIG, learning_rate=RATE, device=CPU, seed=1, precision=precision)
    whole = [tables.rows()]
    dist.broadcast_object_list(whole, src=0)
    for name, shards in theirs._collection.state_dict().items():
        table = name.split(".")[1]
        for shard in cast(ShardedTensor, shards).local_shards():
            first, number = shard.metadata.shard_offsets[0], shard.metadata.shard_sizes[0]
            shard.tensor.detach().copy_(whole[0][table][first : first + number])
    return tables


def update(lookup: Any, ids: KeyedJaggedTensor) -> Rows:
    """A step on rows; gives the rows that it began with."""
    asked: Any = plain(ids) if isinstance(lookup, ShardedTables) else ids
    rows = look_up(lookup, asked, adapting=True)
    torch.autograd.backward(torch.stack([values.square().sum() for values in rows.values()]).sum())
    lookup.settle()
    return {site: values.detach() for site, values in rows.items()}


def _pairs(shape: Shape, kind: str, singletons: bool) -> list[tuple[Tensor, Tensor]]:
    """Rows that ours and TorchRec's give, over three steps."""
    theirs = make_lookup(kind)
    ours = ours_as(theirs)
    pairs = []
    for step in range(3):
        ids = ids_of(shape, step, singletons=singletons)
        mine, wanted = update(ours, ids), update(theirs, ids)
        pairs += [(mine[site], wanted[site]) for site in SITES]
    return pairs


def assert_pairs_close(pairs: list[tuple[Tensor, Tensor]]) -> None:
    # The first rows are alike to the bit; later ones differ by the order in which a row's gradients were summed.
    for number, (found, wanted) in enumerate(pairs):
        tolerance = 0.0 if number < len(SITES) else 1e-5
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@ON_RANKS
@given(shape=SHAPES)
def test_deduplicated_rows_train_as_those_sent_for_each_id(two_ranks: Ranks, shape: Shape) -> None:
    """TorchRec's collection sends a row for each id."""
    for pairs in two_ranks(_pairs, shape, "sequence/row_wise", False):
        assert_pairs_close(pairs)


@ON_RANKS
@given(shape=SHAPES)
def test_singleton_rows_train_as_pooled_ones(two_ranks: Ranks, shape: Shape) -> None:
    """TorchRec's bags exchange lengths and pool, though each sample has one id; they want even ranks."""
    even = replace(shape, num_samples=(shape.num_samples[0],) * 2)
    for pairs in two_ranks(_pairs, even, "pooled/row_wise", True):
        assert_pairs_close(pairs)


def _fused_and_separate(shape: Shape) -> list[tuple[Tensor, Tensor]]:
    tables = ShardedTables(CONFIG, learning_rate=RATE, device=CPU, seed=1)
    ids = plain(ids_of(shape, 0))
    together = look_up(tables, ids, adapting=False)
    fused = tables.take_traffic()
    alone = {site: look_up(tables, {site: ids[site]}, adapting=False)[site] for site in SITES}
    separate = tables.take_traffic()
    assert separate.num_collectives == 3 * fused.num_collectives
    assert separate.num_bytes >= fused.num_bytes - 8 * len(SITES)
    return [(together[site], alone[site]) for site in SITES]


@ON_RANKS
@given(shape=SHAPES)
def test_call_sites_read_the_same_rows_together_and_alone(two_ranks: Ranks, shape: Shape) -> None:
    for pairs in two_ranks(_fused_and_separate, shape):
        for together, alone in pairs:
            assert torch.equal(together, alone)


def _rounded(precision: Precision) -> tuple[list[tuple[Tensor, Tensor]], int, int]:
    """First rows read and last rows after three updates, in a precision and in fp32; bytes of both."""
    shape = Shape(seed=1, num_samples=(9, 7), max_ids=6)
    tables = {
        name: ShardedTables(CONFIG, learning_rate=RATE, device=CPU, seed=1, precision=name)
        for name in (precision, "fp32")
    }
    pairs, num_bytes = [], []
    for step in range(3):
        found, wanted = (update(of, ids_of(shape, step)) for of in tables.values())
        pairs += [(found[site], wanted[site]) for site in SITES]
    num_bytes = [of.take_traffic().num_bytes for of in tables.values()]
    return pairs, num_bytes[0], num_bytes[-1]


# Relative: half, brain float; 8 bits over the span of a row of a few units.
@pytest.mark.parametrize(("precision", "tolerance"), [("fp16", 2e-3), ("bf16", 2e-2), ("int8", 4e-2)])
def test_rows_travel_in_fewer_bits(two_ranks: Ranks, precision: str, tolerance: float) -> None:
    for pairs, num_bytes, whole_bytes in two_ranks(_rounded, precision):
        for number, (found, wanted) in enumerate(pairs):
            torch.testing.assert_close(found, wanted, rtol=3 * tolerance, atol=3 * tolerance)
            if number < len(SITES) and len(found):
                assert not torch.equal(found, wanted), "the exchange rounds"
        assert num_bytes < 0.8 * whole_bytes or precision == "int8"  # a scale and an offset weigh much at a width of 4


def _gradients_and_traffic() -> tuple[int, int, float]:
    tables = ShardedTables(CONFIG, learning_rate=RATE, device=CPU, seed=1)
    shape = Shape(seed=3, num_samples=(8, 8), max_ids=5)
    look_up(tables, plain(ids_of(shape, 0)), adapting=False)
    frozen = tables.take_traffic()
    update(tables, ids_of(shape, 0))
    adapting = tables.take_traffic()
    for _ in range(4):
        look_up(tables, plain(ids_of(shape, 0)), adapting=False)
    return frozen.num_collectives, adapting.num_collectives, tables.take_traffic().shared_ids


def test_a_frozen_lookup_sends_no_gradient(two_ranks: Ranks) -> None:
    for frozen, adapting, shared in two_ranks(_gradients_and_traffic):
        assert (frozen, adapting) == (3, 4), "counts, ids and rows; then gradients"
        assert shared == 1.0, "the same batch again shares every id"


def test_alone_nothing_is_sent(one_rank: torch.device) -> None:
    tables = ShardedTables(CONFIG, learning_rate=RATE, device=CPU, seed=1)
    ids = KeyedJaggedTensor(
        keys=[USER, CANDIDATE, HISTORY], values=torch.tensor([1, 2, 3]), lengths=torch.ones(3, dtype=torch.int32)
    )
    update(tables, ids)
    traffic = tables.take_traffic()
    assert (traffic.num_collectives, traffic.num_bytes) == (0, 0)
