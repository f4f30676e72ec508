"""TorchRec's planner, offline: what it predicts for tables on a cluster that is not here.

It plans meta tensors, without a process group and without a GPU, held to what the trainer does: every table by rows
over all ranks, fused, in the GPUs' memory, with row-wise Adagrad.

Its model of a GPU is kept. Its exchange is replaced, through its own hooks, by what `trainer.embeddings.exchange`
sends: for row-wise tables, TorchRec's ids take as many times too long as there are ranks, and it knows neither 32-bit
ids nor that a GPU keeps its own share. As in its model, everything goes over a GPU's link to other hosts as soon as
there are any, a link is always at its full bandwidth, collectives take no time to start, and memory moves 897 GiB/s (a
V100's).
"""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torchrec import EmbeddingCollection, EmbeddingConfig
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
from torchrec.distributed.planner.constants import CROSS_NODE_BANDWIDTH, INTRA_NODE_BANDWIDTH
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator.annotations import bwd_comms, fwd_comms, input_dist_comms
from torchrec.distributed.planner.estimator.config import EmbeddingPerfEstimatorConfig
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    CollectiveType,
    HardwareConfig,
    KernelConfig,
    PlannerError,
    Topology,
    TopologyFactory,
    TrainerConfig,
)
from torchrec.distributed.types import ShardingType
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from trainer.embeddings.exchange import Precision
from trainer.embeddings.layout import Layout
from trainer.embeddings.lookup import SITES_OF_TABLE
from trainer.errors import InputError

RESERVED_SHARE = 0.15
"""Of a GPU's memory, kept for what a plan does not know: the network, its optimizer, activations, rows as they are
encoded, fragmentation, CUDA itself. TorchRec's planner keeps that share by default."""

MAX_GPUS = 2048
GIB = 2**30
SLOT_BYTES = 4
_BYTES_PER_MS = 125_000  # of 1 Gbit/s
_VALUE_BYTES: dict[Precision, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
_INT8_SCALE_BYTES = 8
_SHARDING, _KERNEL = ShardingType.ROW_WISE.value, EmbeddingComputeKernel.FUSED.value


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The GPUs to plan for; all hosts alike.

    Attributes:
        num_gpus: All of them.
        hbm_gib: Memory of one, in GiB.
        gpus_per_host: GPUs that share a host; fewer GPUs than that are one host.
        intra_gbps: What one GPU sends to others of its host, in Gbit/s (1e9 bits); TorchRec's 600 GiB/s by default.
        inter_gbps: What one GPU sends to other hosts, in Gbit/s; TorchRec's 12.5 GiB/s by default.

    Raises:
        InputError: A number is out of its range, or the GPUs do not fill their hosts.
    """

    num_gpus: int
    hbm_gib: float
    gpus_per_host: int = 8
    intra_gbps: float = INTRA_NODE_BANDWIDTH / _BYTES_PER_MS
    inter_gbps: float = CROSS_NODE_BANDWIDTH / _BYTES_PER_MS

    def __post_init__(self) -> None:
        for name, number in (("GPUs", self.num_gpus), ("GPUs a host", self.gpus_per_host)):
            if not 1 <= number <= MAX_GPUS:
                raise InputError(f"cluster: {number} {name}; name 1 to {MAX_GPUS}")
        numbers = {
            "GiB of memory": self.hbm_gib,
            "Gbit/s within a host": self.intra_gbps,
            "Gbit/s between hosts": self.inter_gbps,
        }
        for name, size in numbers.items():
            if not 0 < size < math.inf:
                raise InputError(f"cluster: {size} {name}; name a number above 0")
        if self.num_gpus > self.gpus_per_host and self.num_gpus % self.gpus_per_host:
            raise InputError(
                f"cluster: {self.num_gpus} GPUs do not fill hosts of {self.gpus_per_host}; "
                f"name a multiple of {self.gpus_per_host}, or other hosts with --gpus-per-host"
            )

    @property
    def num_hosts(self) -> int:
        """Hosts that the GPUs fill."""
        return -(-self.num_gpus // self.gpus_per_host)

    @property
    def hbm_bytes(self) -> int:
        """Memory of a GPU."""
        return int(self.hbm_gib * GIB)

    @property
    def usable_bytes(self) -> int:
        """Memory of a GPU without its reserved share."""
        return int((1 - RESERVED_SHARE) * self.hbm_bytes)


@dataclass(frozen=True, kw_only=True)
class TablePlan:
    """One table.

    Attributes:
        name: Of the table.
        num_rows: All its rows.
        dim: Values of a row.
        rows_per_gpu: Rows of a shard; the last GPUs may hold fewer.
        bytes_per_gpu: Of a shard: rows and optimizer state.
    """

    name: str
    num_rows: int
    dim: int
    rows_per_gpu: int
    bytes_per_gpu: int


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Predicted times of a step's lookup and update, in milliseconds.

    Attributes:
        ids_ms: Ids on their way (TorchRec's ``input_dist_comms``).
        gather_ms: Rows read (``fwd_compute``).
        rows_ms: Rows on their way (``fwd_comms``).
        gradients_ms: Gradients on their way (``bwd_comms``).
        scatter_ms: Rows updated (``bwd_compute``).
    """

    ids_ms: float
    gather_ms: float
    rows_ms: float
    gradients_ms: float
    scatter_ms: float

    @property
    def lookup_ms(self) -> float:
        """What a step waits for that looks up when it begins (``lookup.mode=sync``)."""
        return self.ids_ms + self.gather_ms + self.rows_ms

    @property
    def update_ms(self) -> float:
        """The way back; none while tables are frozen."""
        return self.gradients_ms + self.scatter_ms


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What TorchRec predicts.

    Attributes:
        num_bytes: Of the fullest GPU: rows, optimizer state, one batch's int64 ids and float32 rows.
        time: Of a step.
    """

    num_bytes: int
    time: StepTime


def row_bytes(dim: int, precision: Precision) -> int:
    """Bytes of a row on its way; see `trainer.embeddings.exchange`."""
    return dim * _VALUE_BYTES[precision] + (_INT8_SCALE_BYTES if precision == "int8" else 0)


def gradient_bytes(dim: int, precision: Precision) -> int:
    """Bytes of a row's gradient on its way."""
    return row_bytes(dim, "bf16" if precision == "int8" else precision)


def estimate(
    cluster: Cluster,
    tables: tuple[TablePlan, ...],
    *,
    batch_rows_per_gpu: int,
    lookups_of_site: Mapping[str, int],
    precision: Precision,
) -> Estimate:
    """Asks TorchRec's planner.

    Args:
        cluster: To plan for.
        tables: To plan.
        batch_rows_per_gpu: Impressions of a step on one rank.
        lookups_of_site: Ids that an impression looks up, by call site.
        precision: Of rows on their way.

    Raises:
        InputError: The planner finds no plan.
    """
    constraints = {
        table.name: ParameterConstraints(
            sharding_types=[_SHARDING],
            compute_kernels=[_KERNEL],
            pooling_factors=[float(lookups_of_site[site]) for site in SITES_OF_TABLE[table.name]],
        )
        for table in tables
    }
    chosen: list[Any] = []

    def remember(options: list[Any]) -> list[Any]:
        chosen.extend(options)
        return options

    with _silence():
        topology = _topology(cluster)
        estimators = [
            EmbeddingPerfEstimator(topology, constraints, config=_OurExchange(precision)),
            EmbeddingStorageEstimator(topology, constraints),
        ]
        planner = EmbeddingShardingPlanner(
            topology=topology,
            batch_size=batch_rows_per_gpu,
            constraints=constraints,
            enumerator=EmbeddingEnumerator(topology, batch_rows_per_gpu, constraints, estimators),
            storage_reservation=FixedPercentageStorageReservation(RESERVED_SHARE),
            stats=[],
            debug=False,
            callbacks=[remember],
        )
        try:
            planner.plan(_collection(tables), [EmbeddingCollectionSharder()])
        except PlannerError as error:
            raise InputError(f"TorchRec's planner finds no plan: {' '.join(str(error).split())}") from None
    _check(chosen, tables, cluster.num_gpus)
    return _estimate_of(chosen, cluster.num_gpus)


class _OurExchange(EmbeddingPerfEstimatorConfig):  # type: ignore[misc]
    """TorchRec's model of a GPU, with what `trainer.embeddings.exchange` sends; bandwidths are in bytes/ms."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision

    @input_dist_comms(sharding_type=_SHARDING)  # type: ignore[untyped-decorator]
    def ids_ms(self, context: Any) -> float:
        """How long the ids of a table take."""
        return _sending_ms(context, SLOT_BYTES)

    @fwd_comms(sharding_type=_SHARDING)  # type: ignore[untyped-decorator]
    def rows_ms(self, context: Any) -> float:
        """How long its rows take."""
        return _sending_ms(context, row_bytes(context.emb_dim, self._precision))

    @bwd_comms(sharding_type=_SHARDING)  # type: ignore[untyped-decorator]
    def gradients_ms(self, context: Any) -> float:
        """How long their gradients take."""
        return _sending_ms(context, gradient_bytes(context.emb_dim, self._precision))


def _sending_ms(context: Any, item_bytes: int) -> float:
    num_leaving = context.batch_inputs * (context.world_size - 1) / context.world_size
    bytes_per_ms = context.comms_bandwidths.get_bw(
        world_size=context.world_size,
        local_world_size=context.local_world_size,
        collective_type=CollectiveType.ALL_TO_ALL,
    )
    return float(num_leaving * item_bytes / bytes_per_ms)


def _topology(cluster: Cluster) -> Topology:
    return TopologyFactory.create_topology(
        TrainerConfig(
            world_size=cluster.num_gpus,
            local_world_size=min(cluster.num_gpus, cluster.gpus_per_host),
            hbm_cap_bytes=cluster.hbm_bytes,
        ),
        HardwareConfig(
            intra_host_bw=cluster.intra_gbps * _BYTES_PER_MS, inter_host_bw=cluster.inter_gbps * _BYTES_PER_MS
        ),
        KernelConfig(compute_device="cuda", use_hardware_based_bandwidth=True),
    )


def _collection(tables: tuple[TablePlan, ...]) -> EmbeddingCollection:
    collection = EmbeddingCollection(
        device=torch.device("meta"),
        tables=[
            EmbeddingConfig(
                name=table.name,
                num_embeddings=table.num_rows,
                embedding_dim=table.dim,
                feature_names=list(SITES_OF_TABLE[table.name]),
            )
            for table in tables
        ],
    )
    # The planner sizes the state of the optimizer that it finds here; nothing is stepped.
    apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": 1.0})
    return collection


def _check(options: list[Any], tables: tuple[TablePlan, ...], num_gpus: int) -> None:
    """The planner must have planned what the trainer does: `Layout`'s blocks, each on its rank."""
    by_name = {option.name: option for option in options}
    assert set(by_name) == {table.name for table in tables}
    for table in tables:
        option, layout = by_name[table.name], Layout({table.name: table.num_rows}, num_ranks=num_gpus)
        assert (option.sharding_type, option.compute_kernel) == (_SHARDING, _KERNEL)
        assert [shard.rank for shard in option.shards] == list(range(num_gpus))
        blocks = [layout.rows_of(table.name, rank) for rank in range(num_gpus)]
        assert [shard.size for shard in option.shards] == [[rows.stop - rows.start, table.dim] for rows in blocks]


def _estimate_of(options: list[Any], num_gpus: int) -> Estimate:
    by_rank = [[option.shards[rank] for option in options] for rank in range(num_gpus)]

    def longest(part: str) -> float:
        return float(max(sum(getattr(shard.perf, part) for shard in shards) for shards in by_rank))

    return Estimate(
        num_bytes=max(sum(shard.storage.hbm for shard in shards) for shards in by_rank),
        time=StepTime(
            ids_ms=longest("input_dist_comms"),
            gather_ms=longest("fwd_compute"),
            rows_ms=longest("fwd_comms"),
            gradients_ms=longest("bwd_comms"),
            scatter_ms=longest("bwd_compute"),
        ),
    )


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing that TorchRec logs here tells a user anything that the plan does not."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
