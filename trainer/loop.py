"""The training loop."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import Lookup, ids_of
from trainer.recipe import TablesConfig
from trainer.thaw.gate import Gate


class Optimizer(Protocol):
    """Updates the network."""

    def begin_step(self, progress: float) -> None:
        """Prepares the step that begins at ``progress`` epochs: no gradients, and its step sizes."""
        ...

    def step(self) -> None:
        """Updates the parameters that train in this step."""
        ...


class Observer(Protocol):
    """Is told what happens; progress bar, history and metrics hang here."""

    def step(self, progress: float, batch: Batch, losses: Mapping[str, Tensor], *, adapting: bool) -> None:
        """A step ended; ``progress`` is where it began, in epochs, ``losses`` are detached scalars of this rank."""
        ...


def fit_epoch(
    epoch: int,
    objective: nn.Module,
    lookup: Lookup,
    gate: Gate,
    reader: SlateReader,
    optimizer: Optimizer,
    observer: Observer,
    *,
    tables: TablesConfig,
    adapts_at: Callable[[float], bool],
    device: torch.device,
) -> None:
    """Trains an objective over one pass of a reader.

    Args:
        epoch: Which pass: 0, 1, ...
        objective: Module from (batch, rows) to named losses; their sum is minimised.
        lookup: Rows by ids. A backward pass through rows that adapt updates the tables as well.
        gate: What may flow back into them.
        reader: The batches.
        optimizer: Of the objective's own parameters.
        observer: Told after each step.
        tables: How ids are hashed into rows.
        adapts_at: Whether tables adapt in the step that begins at this progress, in epochs.
        device: Of the objective and the tables.
    """
    num_steps = reader.num_steps(epoch)
    for step, cpu_batch in enumerate(reader.epoch(epoch)):
        progress = epoch + step / num_steps
        adapting = adapts_at(progress)
        batch = cpu_batch.to(device)
        ids = ids_of(batch, tables)
        passage = gate.open(lookup.start(ids, adapting=adapting).wait(), ids, progress, adapting=adapting)
        optimizer.begin_step(progress)
        losses = objective(batch, passage.rows)
        passage.backward(losses)
        lookup.settle()
        optimizer.step()
        observer.step(progress, batch, {name: loss.detach() for name, loss in losses.items()}, adapting=adapting)
