"""TorchRec's sharded collections behind the lookup seam: for models that hold their tables in one of them."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torchrec import KeyedJaggedTensor
from torchrec.distributed.embedding import ShardedEmbeddingCollection
from torchrec.distributed.embeddingbag import ShardedEmbeddingBagCollection

from trainer.embeddings.lookup import Rows

Collection: TypeAlias = ShardedEmbeddingCollection | ShardedEmbeddingBagCollection


@dataclass(frozen=True, kw_only=True)
class _Sent:
    context: Any
    shard_ids: Any


class ShardedCollection:
    """An `EmbeddingCollection` (rows of each id) or `EmbeddingBagCollection` (pooled rows of each sample), sharded.

    Any plan of TorchRec's serves. The collection's optimizer must be fused
    (``torchrec.optim.apply_optimizer_in_backward``): a backward pass through the rows updates the tables.

    Args:
        collection: Of `DistributedModelParallel` or of a sharder.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    def send(self, ids: KeyedJaggedTensor) -> _Sent:
        """TorchRec's ``input_dist``; see `trainer.embeddings.lookup.Lookup.send`."""
        context = self._collection.create_context()
        return _Sent(context=context, shard_ids=self._collection.input_dist(context, ids).wait().wait())

    def read(self, sent: _Sent, *, adapting: bool) -> Rows:
        """TorchRec's ``compute_and_output_dist``; see `trainer.embeddings.lookup.Lookup.read`.

        Returns:
            (N, D) float32 of each feature of an `EmbeddingCollection`, (B, D) of an `EmbeddingBagCollection`.
        """
        with torch.set_grad_enabled(adapting):
            found = self._collection.compute_and_output_dist(sent.context, sent.shard_ids).wait()
            if isinstance(self._collection, ShardedEmbeddingCollection):
                return {feature: jagged.values() for feature, jagged in found.items()}
            pooled: Rows = found.to_dict()
            return pooled

    def settle(self) -> None:
        """Nothing to end: the fused optimizer's update is whole; see `trainer.embeddings.lookup.Lookup.settle`."""
