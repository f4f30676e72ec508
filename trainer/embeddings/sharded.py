"""The tables of a training run: TorchRec's sharded collection with FBGEMM's fused row-wise Adagrad.

A backward pass through looked-up rows updates them at once; there is no separate optimizer step for tables.
Shape suffixes: R rows of a table, D their width.
"""

import hashlib
from collections.abc import Mapping
from typing import cast

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


class ShardedTables:
    """User and pin tables, split by rows over the ranks of the default process group.

    Rows start from a normal distribution with standard deviation 1 / sqrt(D), the same whatever the number of ranks.

    Args:
        config: Sizes and step size.
        device: Where this rank's shards lie.
        seed: Seed of the first rows.
    """

    def __init__(self, config: TablesConfig, *, device: torch.device, seed: int) -> None:
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
        apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": config.learning_rate})
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

    def start(self, ids: KeyedJaggedTensor, *, adapting: bool) -> Pending:
        """Sends ids to their shards and rows back; see `Lookup.start`."""
        with torch.set_grad_enabled(adapting):
            context = self._sharded.create_context()
            shard_ids = self._sharded.input_dist(context, ids).wait().wait()
            return _PendingRows(self._sharded.compute_and_output_dist(context, shard_ids), adapting=adapting)

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

    def fingerprint(self) -> str:
        """SHA-256 of the bits of this rank's rows and optimizer state."""
        digest = hashlib.sha256()
        for shards in [*self._weights().values(), *self._sums().values()]:
            for shard in shards.local_shards():
                digest.update(shard.tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

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


def _gather(shards: ShardedTensor) -> Tensor | None:
    whole = torch.empty(shards.size()) if dist.get_rank() == 0 else None
    shards.gather(dst=0, out=whole)
    return whole


def _scatter(tables: Mapping[str, ShardedTensor], whole: Mapping[str, Tensor]) -> None:
    for table, shards in tables.items():
        for shard in shards.local_shards():
            first, num_rows = shard.metadata.shard_offsets[0], shard.metadata.shard_sizes[0]
            shard.tensor.detach().copy_(whole[table][first : first + num_rows].reshape(shard.tensor.shape))
