"""The tables of a training run: TorchRec's sharded collection with FBGEMM's fused row-wise Adagrad.

A backward pass through looked-up rows updates them at once; there is no separate optimizer step for tables.
Shape suffixes: R rows of a table, T those that a step touches, D their width.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torchrec import EmbeddingCollection, EmbeddingConfig, JaggedTensor, KeyedJaggedTensor
from torchrec.distributed.embedding import EmbeddingCollectionSharder, ShardedEmbeddingCollection
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
from torchrec.distributed.types import Awaitable, ShardingEnv
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from trainer.embeddings.lookup import SITES_OF_TABLE, Pending, Rows, num_rows_of
from trainer.recipe import TablesConfig


class _PendingRows:
    def __init__(self, awaitable: Awaitable[dict[str, JaggedTensor]], *, adapting: bool) -> None:
        self._awaitable = awaitable
        self._adapting = adapting

    def wait(self) -> Rows:
        with torch.set_grad_enabled(self._adapting):
            return {site: jagged.values() for site, jagged in self._awaitable.wait().items()}


class RowUpdate(Protocol):
    """Decides what becomes of the fused optimizer's update of single rows."""

    def apply(self, old_TD: Tensor, new_TD: Tensor, counts_T: Tensor, interval_T: Tensor) -> Tensor:
        """The rows (T, D) to keep.

        Args:
            old_TD: The rows before the update.
            new_TD: The rows after it.
            counts_T: How often the window shows each.
            interval_T: Steps since each was last touched.
        """
        ...


class ShardedTables:
    """User and pin tables, split by rows over the ranks of the default process group.

    Rows start from a normal distribution with standard deviation 1 / sqrt(D), the same whatever the number of ranks.

    Args:
        config: Sizes.
        learning_rate: Step size of the fused optimizer.
        device: Where this rank's shards lie.
        seed: Seed of the first rows.
        row_update: What becomes of a row's update; None, which costs nothing, takes it as it is.
        counts: Impressions of each row (R,) by table, for ``row_update``.
    """

    def __init__(
        self,
        config: TablesConfig,
        *,
        learning_rate: float,
        device: torch.device,
        seed: int,
        row_update: RowUpdate | None = None,
        counts: Mapping[str, Tensor] | None = None,
    ) -> None:
        collection = EmbeddingCollection(
            tables=[
                EmbeddingConfig(
                    name=table,
                    num_embeddings=num_rows,
                    embedding_dim=config.dim,
                    feature_names=list(SITES_OF_TABLE[table]),
                )
                for table, num_rows in num_rows_of(config).items()
            ],
            device=torch.device("meta"),
        )
        apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": learning_rate})
        sharder = EmbeddingCollectionSharder()
        world_size = dist.get_world_size()
        plan = construct_module_sharding_plan(
            collection,
            {table: row_wise(compute_kernel="fused") for table in SITES_OF_TABLE},
            sharder=sharder,
            world_size=world_size,
            local_size=world_size,
            device_type=device.type,
        )
        env = ShardingEnv.from_process_group(cast(dist.ProcessGroup, dist.group.WORLD))
        self._sharded: ShardedEmbeddingCollection = sharder.shard(collection, plan, env, device=device)
        self._first_rows(config, seed)
        self._touched = None if row_update is None else _Touched(row_update, self._weights(), counts or {})

    def start(self, ids: KeyedJaggedTensor, *, adapting: bool) -> Pending:
        """Sends ids to their shards and rows back; see `Lookup.start`."""
        with torch.set_grad_enabled(adapting):
            context = self._sharded.create_context()
            shard_ids = self._sharded.input_dist(context, ids).wait().wait()
            if adapting and self._touched is not None:
                self._touched.remember(shard_ids)
            return _PendingRows(self._sharded.compute_and_output_dist(context, shard_ids), adapting=adapting)

    def settle(self) -> None:
        """Finishes an update; see `Lookup.settle`."""
        if self._touched is not None:
            self._touched.settle()

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the step size of the coming updates."""
        optimizer = self._sharded.fused_optimizer
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()  # hands the step size to the fused kernels; it updates no row

    def rows(self) -> dict[str, Tensor]:
        """The whole tables (R, D) float32 on CPU, by name; collective, empty on ranks other than 0."""
        return {table: whole for table, shards in self._weights().items() if (whole := _gather(shards)) is not None}

    def state(self) -> dict[str, Tensor]:
        """The whole Adagrad sums (R,) float32 on CPU, by table; collective, empty on ranks other than 0."""
        return {table: whole for table, shards in self._sums().items() if (whole := _gather(shards)) is not None}

    def load_rows(self, rows: Mapping[str, Tensor]) -> None:
        """Copies this rank's part of whole tables (R, D)."""
        _scatter(self._weights(), rows)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies this rank's part of whole Adagrad sums (R,)."""
        _scatter(self._sums(), state)

    def reset_state(self) -> None:
        """Sets the Adagrad sums to zero."""
        for shards in self._sums().values():
            for shard in shards.local_shards():
                shard.tensor.zero_()

    def local_state(self) -> dict[str, Tensor]:
        """Copies of this rank's shards of rows and optimizer state; `load_local_state` sets them again."""
        return {name: shard.clone() for name, shard in self._local().items()}

    def load_local_state(self, state: Mapping[str, Tensor]) -> None:
        """Sets this rank's shards to what `local_state` returned."""
        for name, shard in self._local().items():
            shard.copy_(state[name])

    def fingerprint(self) -> str:
        """SHA-256 of the bits of this rank's rows and optimizer state."""
        digest = hashlib.sha256()
        for shard in self._local().values():
            digest.update(shard.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def _local(self) -> dict[str, Tensor]:
        kinds = {"rows": self._weights(), "state": self._sums()}
        local = {
            f"{kind}.{table}.{number}": shard.tensor.detach()
            for kind, tables in kinds.items()
            for table, shards in tables.items()
            for number, shard in enumerate(shards.local_shards())
        }
        return local | (self._touched.state if self._touched is not None else {})

    def _first_rows(self, config: TablesConfig, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        rows = {
            table: torch.randn(num_rows, config.dim, generator=generator) / config.dim**0.5
            for table, num_rows in num_rows_of(config).items()
        }
        self.load_rows(rows)

    def _weights(self) -> dict[str, ShardedTensor]:
        state = self._sharded.state_dict()
        return {table: cast(ShardedTensor, state[f"embeddings.{table}.weight"]) for table in SITES_OF_TABLE}

    def _sums(self) -> dict[str, ShardedTensor]:
        state = self._sharded.fused_optimizer.state_dict()["state"]
        return {
            table: cast(ShardedTensor, state[f"embeddings.{table}.weight"][f"{table}.momentum1"])
            for table in SITES_OF_TABLE
        }


@dataclass
class _Shard:
    """This rank's rows of a table, and what a row's update asks for: impressions, and the step of the last update."""

    rows_RD: Tensor
    counts_R: Tensor
    last_step_R: Tensor


class _Touched:
    """Lets a `RowUpdate` have its say on the rows that a step touches."""

    def __init__(
        self, row_update: RowUpdate, weights: Mapping[str, ShardedTensor], counts: Mapping[str, Tensor]
    ) -> None:
        self._row_update = row_update
        self._shards = {
            table: _Shard(
                rows,
                _local_part(shards, counts[table]).to(rows.device),
                torch.zeros(len(rows), dtype=torch.int32, device=rows.device),
            )
            for table, shards in weights.items()
            if (rows := _only_shard(shards)) is not None
        }
        self._step = torch.zeros((), dtype=torch.int32)
        self._before: dict[str, tuple[Tensor, Tensor]] = {}

    @property
    def state(self) -> dict[str, Tensor]:
        """What the coming intervals are counted from; not copies."""
        return {"step": self._step} | {f"last_step.{table}": shard.last_step_R for table, shard in self._shards.items()}

    def remember(self, shard_ids: Any) -> None:
        """Keeps the rows that the ids sent to this rank will touch, as they are before the update."""
        self._step += 1
        for jagged in shard_ids:
            for table, shard in self._shards.items():
                touched_T = torch.cat([jagged[site].values() for site in SITES_OF_TABLE[table]]).unique()  # type: ignore[no-untyped-call]
                self._before[table] = touched_T, shard.rows_RD[touched_T]

    def settle(self) -> None:
        """Replaces the update of the remembered rows."""
        for table, (touched_T, old_TD) in self._before.items():
            shard = self._shards[table]
            interval_T = int(self._step) - shard.last_step_R[touched_T]
            new_TD = shard.rows_RD[touched_T]
            kept_TD = self._row_update.apply(old_TD, new_TD, shard.counts_R[touched_T], interval_T)
            shard.rows_RD[touched_T] = kept_TD
            shard.last_step_R[touched_T] = int(self._step)
        self._before.clear()


def _only_shard(shards: ShardedTensor) -> Tensor | None:
    """This rank's rows; row-wise sharding gives a rank one shard of a table, or none."""
    local = shards.local_shards()
    return local[0].tensor.detach() if local else None


def _local_part(shards: ShardedTensor, whole_R: Tensor) -> Tensor:
    metadata = shards.local_shards()[0].metadata
    first = metadata.shard_offsets[0]
    return whole_R[first : first + metadata.shard_sizes[0]]


def _gather(shards: ShardedTensor) -> Tensor | None:
    whole = torch.empty(shards.size()) if dist.get_rank() == 0 else None
    shards.gather(dst=0, out=whole)
    return whole


def _scatter(tables: Mapping[str, ShardedTensor], whole: Mapping[str, Tensor]) -> None:
    for table, shards in tables.items():
        for shard in shards.local_shards():
            first, num_rows = shard.metadata.shard_offsets[0], shard.metadata.shard_sizes[0]
            shard.tensor.detach().copy_(whole[table][first : first + num_rows].reshape(shard.tensor.shape))
