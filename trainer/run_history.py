"""What a run tells while it trains, and what it leaves behind: the history of its losses and held-out metrics."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from trainer.batches.batch import Batch

_NUM_CURVE_POINTS_PER_EPOCH = 20


@dataclass
class _Sums:
    """Running means since the last emission."""

    num_steps: int = 0
    num_rows: int = 0
    losses: dict[str, Tensor] = field(default_factory=dict)
    num_adapting: int = 0
    began_s: float = field(default_factory=time.perf_counter)

    def add(self, losses: Mapping[str, Tensor], num_rows: int, *, adapting: bool) -> None:
        self.num_steps += 1
        self.num_rows += num_rows
        self.num_adapting += adapting
        for name, loss in losses.items():
            self.losses[name] = self.losses.get(name, torch.zeros_like(loss)) + loss

    def means(self) -> dict[str, float]:
        return {name: float(loss) / self.num_steps for name, loss in self.losses.items()}

    @property
    def phase(self) -> str:
        if self.num_adapting in (0, self.num_steps):
            return "adapting" if self.num_adapting else "frozen"
        return "mixed"

    @property
    def rows_per_s(self) -> float:
        return self.num_rows / (time.perf_counter() - self.began_s)


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One pass: mean losses of rank 0, rows a second of all ranks, and held-out metrics after it."""

    epoch: int
    phase: str
    loss: float
    losses: Mapping[str, float]
    rows_per_s: float
    heldout: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Mean loss of about a twentieth of a pass that ended at ``epoch`` (fractional)."""

    epoch: float
    loss: float
    phase: str


class RunHistory:
    """Shows a progress bar (rank 0) and keeps the records of a run.

    Args:
        num_steps: Steps of each pass.
        evaluate: Held-out metrics by name, called by every rank after each pass.
        title: Of the bar.
        is_shown: Whether this process shows the bar.
    """

    def __init__(
        self, num_steps: list[int], *, evaluate: Callable[[], Mapping[str, float]], title: str, is_shown: bool
    ) -> None:
        self.epochs: list[EpochRecord] = []
        self.curve: list[CurvePoint] = []
        self._num_steps = num_steps
        self._evaluate = evaluate
        self._pass, self._recent = _Sums(), _Sums()
        hidden: dict[str, Any] = (
            {} if is_shown else {"disable": True}
        )  # left out, TQDM_DISABLE in the environment has its say
        self._bar = tqdm(total=sum(num_steps), desc=title, unit="step", file=sys.stderr, mininterval=1.0, **hidden)

    def step(self, progress: float, batch: Batch, losses: Mapping[str, Tensor], *, adapting: bool) -> None:
        """Adds a step; see `trainer.loop.Observer`."""
        self._pass.add(losses, batch.num_step_rows, adapting=adapting)
        self._recent.add(losses, batch.num_step_rows, adapting=adapting)
        self._bar.update()
        num_steps = self._num_steps[int(progress)]
        if self._recent.num_steps * _NUM_CURVE_POINTS_PER_EPOCH >= num_steps:
            recent = self._recent
            loss = sum(recent.means().values())
            self.curve.append(CurvePoint(epoch=progress + 1 / num_steps, loss=loss, phase=recent.phase))
            self._bar.set_postfix_str(f"loss {loss:.4f}, {recent.rows_per_s:,.0f} rows/s, tables {recent.phase}")
            self._recent = _Sums()

    def epoch(self, epoch: int) -> None:
        """Ends a pass: evaluates, and keeps its record."""
        means, phase, rows_per_s = self._pass.means(), self._pass.phase, self._pass.rows_per_s
        record = EpochRecord(
            epoch=epoch + 1,
            phase=phase,
            loss=sum(means.values()),
            losses=means,
            rows_per_s=rows_per_s,
            heldout=self._evaluate(),
        )
        self.epochs.append(record)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in record.heldout.items())
        if not self._bar.disable:
            self._bar.write(f"epoch {record.epoch}: loss {record.loss:.4f}, tables {phase}; {shown}", file=sys.stderr)
        self._pass, self._recent = _Sums(), _Sums()
        if epoch + 1 == len(self._num_steps):
            self._bar.close()

    def to_dict(self) -> dict[str, Any]:
        """Steps in all, epochs and curve as plain data."""
        return {
            "num_steps": sum(self._num_steps),
            "epochs": [asdict(record) for record in self.epochs],
            "curve": [asdict(point) for point in self.curve],
        }
