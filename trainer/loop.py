"""The training loop."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import Lookup, ids_of
from trainer.recipe import TablesConfig


class Observer(Protocol):
    """Is told what happens; progress bar, history and metrics hang here."""

    def step(self, progress: float, batch: Batch, losses: Mapping[str, Tensor], *, adapting: bool) -> None:
        """A step ended; ``progress`` is where it began, in epochs, ``losses`` are detached scalars of this rank."""
        ...

    def epoch(self, epoch: int) -> None:
        """A pass (0, 1, ...) ended."""
        ...


def fit(
    objective: nn.Module,
    lookup: Lookup,
    reader: SlateReader,
    optimizer: torch.optim.Optimizer,
    observer: Observer,
    *,
    tables: TablesConfig,
    num_epochs: int,
    adapts_at: Callable[[float], bool],
    device: torch.device,
) -> None:
    """Trains an objective over a reader's epochs.

    Args:
        objective: Module from (batch, rows) to named losses; their sum is minimised.
        lookup: Rows by ids. A backward pass through rows that adapt updates the tables as well.
        reader: The batches.
        optimizer: Of the objective's own parameters.
        observer: Told after each step and each pass.
        tables: How ids are hashed into rows.
        num_epochs: Passes.
        adapts_at: Whether tables adapt in the step that begins at this progress, in epochs.
        device: Of the objective and the tables.
    """
    for epoch in range(num_epochs):
        num_steps = reader.num_steps(epoch)
        for step, cpu_batch in enumerate(reader.epoch(epoch)):
            progress = epoch + step / num_steps
            adapting = adapts_at(progress)
            batch = cpu_batch.to(device)
            rows = lookup.start(ids_of(batch, tables), adapting=adapting).wait()
            losses = objective(batch, rows)
            optimizer.zero_grad()
            torch.autograd.backward(torch.stack(list(losses.values())).sum())
            optimizer.step()
            observer.step(progress, batch, {name: loss.detach() for name, loss in losses.items()}, adapting=adapting)
        observer.epoch(epoch)
