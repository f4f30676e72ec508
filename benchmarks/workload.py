"""A step to measure lookups in: a user, a candidate and a history a sample, and a transformer that reads their rows.

All lengths are fixed, so that TorchRec can trace the model.
Shape suffixes: B samples, L ids of a history, D width of a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchrec import KeyedJaggedTensor
from torchrec.streamable import Pipelineable

from trainer.embeddings.lookup import CANDIDATE, HISTORY, USER, Ids, Rows
from trainer.model.transformer import Block
from trainer.recipe import TablesConfig


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Sizes, of one rank.

    Attributes:
        num_rows: Rows of each of the two tables.
        dim: Width of a row.
        batch_rows: Samples a step.
        history_length: Ids of a history.
        num_layers: Transformer layers over it, which share their weights: much to compute, little to average.
    """

    num_rows: int = 200_000
    dim: int = 32
    batch_rows: int = 384
    history_length: int = 40
    num_layers: int = 8

    @property
    def tables(self) -> TablesConfig:
        """Our tables of that size."""
        return TablesConfig(num_user_rows=self.num_rows, num_pin_rows=self.num_rows, dim=self.dim)

    @property
    def num_ids(self) -> int:
        """Ids of a batch, all call sites together."""
        return self.batch_rows * (2 + self.history_length)

    def batches(self, number: int, *, rank: int, seed: int = 0) -> "list[Samples]":
        """Batches of ids drawn uniformly, and of labels."""
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        return [self._batch(generator) for _ in range(number)]

    def _batch(self, generator: torch.Generator) -> "Samples":
        ones = torch.ones(self.batch_rows, dtype=torch.int32)
        ids = torch.randint(self.num_rows, (self.num_ids,), generator=generator)
        lengths = torch.cat([ones, ones, ones * self.history_length])
        labels = torch.randint(2, (self.batch_rows,), generator=generator).float()
        return Samples(
            ids=KeyedJaggedTensor(keys=[USER, CANDIDATE, HISTORY], values=ids, lengths=lengths), labels=labels
        )


@dataclass
class Samples(Pipelineable):  # type: ignore[misc]
    """A batch as TorchRec's pipelines want it."""

    ids: KeyedJaggedTensor
    labels: Tensor

    @property
    def plain_ids(self) -> Ids:
        """The ids by call site, as our tables want them."""
        num_rows = len(self.labels)
        user, candidate, history = self.ids.values().split([num_rows, num_rows, len(self.ids.values()) - 2 * num_rows])
        return {USER: user, CANDIDATE: candidate, HISTORY: history}

    def to(self, device: torch.device, non_blocking: bool = False) -> "Samples":
        """See torchrec."""
        return Samples(ids=self.ids.to(device, non_blocking), labels=self.labels.to(device, non_blocking=non_blocking))

    def record_stream(self, stream: Any) -> None:
        """See torchrec."""
        self.ids.record_stream(stream)
        self.labels.record_stream(stream)

    def pin_memory(self) -> "Samples":
        """See torchrec."""
        return Samples(ids=self.ids.pin_memory(), labels=self.labels.pin_memory())


class Network(nn.Module):
    """The dense part: a transformer over the history beside user and candidate, and one logit."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        torch.manual_seed(0)
        self._length, self._dim, self._num_layers = workload.history_length, workload.dim, workload.num_layers
        self.block = Block(workload.dim, num_heads=2)
        self.head = nn.Sequential(nn.Linear(3 * workload.dim, 32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer(
            "is_hidden_BL", torch.zeros(workload.batch_rows, workload.history_length, dtype=torch.bool)
        )

    def forward(self, user_BD: Tensor, candidate_BD: Tensor, history_ND: Tensor, labels_B: Tensor) -> Tensor:
        """The mean loss."""
        tokens_BLD = history_ND.view(-1, self._length, self._dim)
        for _ in range(self._num_layers):
            tokens_BLD = self.block(tokens_BLD, self.is_hidden_BL)
        logits_B = self.head(torch.cat([user_BD, candidate_BD, tokens_BLD.mean(dim=1)], dim=1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(logits_B, labels_B)


def loss_of(network: nn.Module, rows: Rows, batch: Samples) -> Tensor:
    """The network on looked-up rows."""
    loss: Tensor = network(rows[USER], rows[CANDIDATE], rows[HISTORY], batch.labels)
    return loss


def cycle(batches: "list[Samples]") -> "Iterator[Samples]":
    """The batches again and again, without end."""
    while True:
        yield from batches
