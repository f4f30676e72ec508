"""A run at the end of a pass: all that the next pass depends on.

Going on from it equals never having stopped, to the bit, on the same number of ranks.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainer.dense_optimizer import DenseOptimizer
from trainer.embeddings.sharded import ShardedTables
from trainer.run_history import CurvePoint, EpochRecord, RunHistory


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Copies of this rank's part of a run, in memory.

    Attributes:
        dense: Parameters and buffers of the network.
        optimizer: Adam's state.
        tables: This rank's rows and their optimizer state.
        rng: State of the random numbers that dropout draws from, by device.
        epochs: Records of the passes so far.
        curve: The history's curve so far.
    """

    dense: dict[str, Tensor]
    optimizer: dict[str, Any]
    tables: dict[str, Tensor]
    rng: dict[str, Tensor]
    epochs: list[EpochRecord]
    curve: list[CurvePoint]

    @classmethod
    def of(
        cls, network: nn.Module, optimizer: DenseOptimizer, tables: ShardedTables, history: RunHistory
    ) -> "RunState":
        """Copies the state of a run that has just ended a pass."""
        return cls(
            dense=copy.deepcopy(network.state_dict()),
            optimizer=copy.deepcopy(optimizer.state_dict()),
            tables=tables.local_state(),
            rng={"cpu": torch.get_rng_state()}
            | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}),
            epochs=list(history.epochs),
            curve=list(history.curve),
        )

    def restore(
        self, network: nn.Module, optimizer: DenseOptimizer, tables: ShardedTables, history: RunHistory
    ) -> None:
        """Sets a run of the same recipe back to this state."""
        network.load_state_dict(self.dense)
        optimizer.load_state_dict(copy.deepcopy(self.optimizer))
        tables.load_local_state(self.tables)
        torch.set_rng_state(self.rng["cpu"])
        if "cuda" in self.rng:
            torch.cuda.set_rng_state(self.rng["cuda"])
        history.resume(self.epochs, self.curve)
