"""What a run tells while it trains, and what it leaves behind: the history of its losses and held-out metrics."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor
from tqdm import tqdm

from trainer import logs
from trainer.batches.batch import Batch
from trainer.telemetry import Telemetry

NUM_CURVE_POINTS_PER_EPOCH = 20


@dataclass
class _Sums:
    """Running means since the last emission."""

    num_steps: int = 0
    num_rows: int = 0
    losses: dict[str, Tensor] = field(default_factory=dict)
    num_adapting: int = 0
    num_row_gradients: int = 0
    began_s: float = field(default_factory=time.perf_counter)
    ended_s: float = 0.0

    def add(self, losses: Mapping[str, Tensor], batch: Batch, *, adapting: bool) -> None:
        self.num_steps += 1
        self.num_rows += batch.num_step_rows
        self.num_adapting += adapting
        self.num_row_gradients += adapting * batch.num_lookups
        self.ended_s = time.perf_counter()
        for name, loss in losses.items():
            if name in self.losses:
                self.losses[name] += loss
            else:
                self.losses[name] = loss.clone()

    def extend(self, later: "_Sums") -> None:
        """Adds the sums of the steps that came next."""
        self.num_steps += later.num_steps
        self.num_rows += later.num_rows
        self.num_adapting += later.num_adapting
        self.num_row_gradients += later.num_row_gradients
        self.ended_s = later.ended_s
        for name, loss in later.losses.items():
            self.losses[name] = self.losses[name] + loss if name in self.losses else loss

    def means(self) -> dict[str, float]:
        return {name: float(loss) / self.num_steps for name, loss in self.losses.items()}

    @property
    def phase(self) -> str:
        if self.num_adapting in (0, self.num_steps):
            return "adapting" if self.num_adapting else "frozen"
        return "mixed"

    @property
    def duration_s(self) -> float:
        return self.ended_s - self.began_s

    @property
    def rows_per_s(self) -> float:
        return self.num_rows / self.duration_s


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One pass.

    Attributes:
        epoch: Passes made, this one included.
        phase: Whether tables were ``frozen``, ``adapting`` or both (``mixed``).
        loss: Mean of the losses' sum, of rank 0's rows.
        losses: Mean of each loss, of rank 0's rows.
        duration_s: Seconds that the pass trained for.
        rows_per_s: Impressions a second, all ranks together.
        num_row_gradients: Gradients of looked-up rows that rank 0 made; those of one row travel as their sum.
        heldout: Metrics on held-out rows after it.
        lookup: What its lookups cost rank 0: ``exposed_s``, seconds that steps waited for rows; ``hidden_share``, the
            part of the lookups' own time that no step waited for; ``shared_ids``, the share of the rows read here that
            the batch before had read too; ``num_collectives`` and ``num_bytes`` sent to other ranks, a step.
        reader_wait_s: Seconds that rank 0 waited for batches, the first one's included.
        canary: What the canary read after it (`trainer.thaw.canary.Reading`), and ``loss_jump``: the loss in this
            pass's first twentieth over that in the last pass's last, less 1; 0 in the first pass.
    """

    epoch: int
    phase: str
    loss: float
    losses: Mapping[str, float]
    duration_s: float
    rows_per_s: float
    num_row_gradients: int
    lookup: Mapping[str, float]
    reader_wait_s: float
    heldout: Mapping[str, float]
    canary: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Mean loss of about a twentieth of a pass that ended at ``epoch`` (fractional)."""

    epoch: float
    loss: float
    phase: str


class RunHistory:
    """Shows a run's progress (rank 0), as a bar or as JSON lines, and keeps its records.

    Args:
        num_steps: Steps of each pass.
        title: Of the bar.
        is_shown: Whether this process shows the progress.
        telemetry: Counts it too, where someone may scrape.
    """

    def __init__(self, num_steps: list[int], *, title: str, is_shown: bool, telemetry: Telemetry | None = None) -> None:
        self.epochs: list[EpochRecord] = []
        self.curve: list[CurvePoint] = []
        self.refrozen_at: int | None = None
        self._num_steps = num_steps
        self._telemetry = telemetry
        self._pass, self._recent = _Sums(), _Sums()
        self._is_logged = is_shown and logs.are_json()
        has_bar = is_shown and not self._is_logged
        # Left out, TQDM_DISABLE in the environment has its say.
        hidden: dict[str, Any] = {} if has_bar else {"disable": True}
        self._bar = tqdm(total=sum(num_steps), desc=title, unit="step", file=sys.stderr, mininterval=1.0, **hidden)

    def begin_epoch(self) -> None:
        """Starts the clock of a pass."""
        self._pass, self._recent = _Sums(), _Sums()
        if self._telemetry is not None:
            self._telemetry.begin_epoch()

    def step(self, progress: float, batch: Batch, losses: Mapping[str, Tensor], *, adapting: bool) -> None:
        """Adds a step; see `trainer.loop.Observer`."""
        self._recent.add(losses, batch, adapting=adapting)
        self._bar.update()
        if self._telemetry is not None:
            self._telemetry.step(epoch=int(progress), num_rows=batch.num_step_rows, adapting=adapting)
        num_steps = self._num_steps[int(progress)]
        if self._recent.num_steps * NUM_CURVE_POINTS_PER_EPOCH >= num_steps:
            # Rounded sums may pass the end of a pass.
            self._add_point(min(progress + 1 / num_steps, int(progress) + 1.0))
            self._begin_part()

    def _add_point(self, ended: float) -> None:
        recent = self._recent
        point = CurvePoint(epoch=ended, loss=sum(recent.means().values()), phase=recent.phase)
        self.curve.append(point)
        shown = f"loss {point.loss:.4f}, {recent.rows_per_s:,.0f} rows/s, tables {point.phase}"
        self._bar.set_postfix_str(shown)
        if self._is_logged:
            logs.say(f"epoch {ended:.2f}: {shown}", **asdict(point), rows_per_s=recent.rows_per_s)

    def end_epoch(
        self,
        *,
        heldout: Mapping[str, float],
        canary: Mapping[str, float],
        lookup: Mapping[str, float],
        reader_wait_s: float,
    ) -> None:
        """Keeps the record of a pass.

        Args:
            heldout: Metrics on held-out rows after it.
            canary: What the canary read after it; empty without one.
            lookup: What its lookups cost, see `EpochRecord`.
            reader_wait_s: Seconds that it waited for batches.
        """
        self._begin_part()
        done = self._pass
        means = done.means()
        record = EpochRecord(
            epoch=len(self.epochs) + 1,
            phase=done.phase,
            loss=sum(means.values()),
            losses=means,
            duration_s=done.duration_s,
            rows_per_s=done.rows_per_s,
            num_row_gradients=done.num_row_gradients,
            lookup=lookup,
            reader_wait_s=reader_wait_s,
            heldout=heldout,
            canary={**canary, "loss_jump": self._loss_jump()} if canary else {},
        )
        self.epochs.append(record)
        if self._telemetry is not None:
            self._telemetry.end_epoch(exposed_s=lookup["exposed_s"], reader_wait_s=reader_wait_s)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in record.heldout.items())
        waits = f"lookups {lookup['exposed_s'] / done.duration_s:.1%} of the time"
        if lookup["hidden_share"]:
            waits += f" ({lookup['hidden_share']:.0%} of them hidden)"
        waits += f", batches {reader_wait_s / done.duration_s:.1%}"
        self.say(f"epoch {record.epoch}: loss {record.loss:.4f}, tables {record.phase}, {waits}; {shown}")
        self._close_at_the_end()

    def _begin_part(self) -> None:
        """Adds what is summed up to the pass's sums."""
        if self._recent.num_steps:
            self._pass.extend(self._recent)
        self._recent = _Sums()

    def resume(self, epochs: Sequence[EpochRecord], curve: Sequence[CurvePoint]) -> None:
        """Goes on after passes that were recorded before."""
        self.epochs, self.curve = list(epochs), list(curve)
        num_done = sum(self._num_steps[: len(epochs)])
        self._bar.update(num_done - self._bar.n)
        if self._telemetry is not None:
            self._telemetry.resume(num_done=num_done)
        self._close_at_the_end()

    def say(self, line: str) -> None:
        """Says a line, above the bar where there is one."""
        if self._is_logged:
            logs.say(line)
        elif not self._bar.disable:
            self._bar.write(line, file=sys.stderr)

    def to_dict(self) -> dict[str, Any]:
        """Steps in all, epochs and curve as plain data."""
        return {
            "num_steps": sum(self._num_steps),
            "epochs": [asdict(record) for record in self.epochs],
            "curve": [asdict(point) for point in self.curve],
            "refrozen_at": self.refrozen_at,
        }

    def _loss_jump(self) -> float:
        epoch = len(self.epochs)
        after = next((point.loss for point in self.curve if point.epoch > epoch), None)
        before = [point.loss for point in self.curve if point.epoch <= epoch]
        return after / before[-1] - 1.0 if before and after is not None else 0.0

    def _close_at_the_end(self) -> None:
        if len(self.epochs) == len(self._num_steps):
            self._bar.close()
