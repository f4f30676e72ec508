"""The training loop."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import ids_of
from trainer.micro_batches import micro_batches
from trainer.ranges import named_range
from trainer.recipe import Recipe
from trainer.semisync.forward import PrefetchingForward, Step
from trainer.semisync.lookahead import Lookahead
from trainer.thaw.gate import Gate

Losses = Mapping[str, Tensor]


class Thawing(Protocol):
    """Says when the tables adapt."""

    def adapts_at(self, progress: float) -> bool:
        """Whether they adapt in the step that begins at ``progress`` epochs."""
        ...

    def prepare(self, progress: float) -> None:
        """Readies them for a step in which they adapt."""
        ...


class Optimizer(Protocol):
    """Updates the network."""

    def begin_step(self, progress: float) -> None:
        """Prepares the step that begins at ``progress`` epochs: no gradients, and its step sizes."""
        ...

    def step(self) -> None:
        """Updates the parameters that train in this step."""
        ...


class Observer(Protocol):
    """Is told what happens; progress bar, history, metrics and profiler hang here."""

    def step(self, progress: float, batch: Batch, losses: Losses, *, adapting: bool) -> None:
        """A step ended; ``progress`` is where it began, in epochs, ``losses`` are detached scalars of this rank."""
        ...


def fit_epoch(
    epoch: int,
    recipe: Recipe,
    objective: nn.Module,
    forward: PrefetchingForward,
    gate: Gate,
    thaw: Thawing,
    reader: SlateReader,
    optimizer: Optimizer,
    observer: Observer,
    *,
    device: torch.device,
) -> None:
    """Trains an objective over one pass of a reader.

    Args:
        epoch: Which pass: 0, 1, ...
        recipe: How ids are hashed into rows, and the parts that a step is split into.
        objective: Module from (batch, rows) to named losses; their sum is minimised.
        forward: Looks up rows, and sends the gradients that a step leaves on them back.
        gate: What may flow back.
        thaw: When the tables adapt.
        reader: The batches.
        optimizer: Of the objective's own parameters.
        observer: Told after each step.
        device: Of the objective and the tables.

    Raises:
        Exception: What a step raised, with a note that names it.
    """
    num_steps = reader.num_steps(epoch)

    def progress_at(number: int) -> float:
        return epoch + number / num_steps

    batches = Lookahead(
        reader.epoch(epoch), lambda batch: ids_of(batch, recipe.tables), prepare=lambda batch: batch.to(device)
    )
    for step in forward.steps(
        batches,
        adapts=lambda number: thaw.adapts_at(progress_at(number)),
        prepare=lambda number: thaw.prepare(progress_at(number)),
    ):
        progress = progress_at(step.number)
        with named_range("network"), _named(epoch, step):
            optimizer.begin_step(progress)
            losses = _backward(step, recipe, objective, gate, progress)
            optimizer.step()
        observer.step(progress, step.batch, losses, adapting=step.adapting)


def _backward(step: Step[Batch], recipe: Recipe, objective: nn.Module, gate: Gate, progress: float) -> Losses:
    """Leaves the step's gradients on the network and on the looked-up rows, part by part; returns its losses."""
    total: dict[str, Tensor] = {}
    parts = list(micro_batches(step.batch, step.rows, recipe.training.num_micro_batches))
    for number, (batch, rows) in enumerate(parts):
        ids = step.ids if len(parts) == 1 else ids_of(batch, recipe.tables)
        with _reduced(objective, is_last=number == len(parts) - 1):
            passage = gate.open(rows, ids, progress, adapting=step.adapting)
            losses: Losses = objective(batch, passage.rows)
            passage.backward(losses)
        for name, loss in losses.items():
            total[name] = total[name] + loss.detach() if name in total else loss.detach()
    return total


def _reduced(objective: nn.Module, *, is_last: bool) -> AbstractContextManager[None]:
    """Ranks average the network's gradients once a step, with the last part's."""
    if is_last or not isinstance(objective, DistributedDataParallel):
        return nullcontext()
    return objective.no_sync()


@contextmanager
def _named(epoch: int, step: Step[Batch]) -> Iterator[None]:
    """Adds to an error which step it is from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in step {step.number} of epoch {epoch + 1} (steps are counted from 0)")
        raise
