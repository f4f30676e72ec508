"""Puts the parts of a run together: a backbone's pretraining, and a ranker's training from a backbone.

Both expect an initialised process group (of one process, too) and run the same code on each of its ranks.
"""

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from trainer.batches.reader import SlateReader
from trainer.batches.slates import Ints
from trainer.batches.source import Source, whole
from trainer.dense_optimizer import DenseOptimizer, Group
from trainer.embeddings.frequency import count_impressions
from trainer.embeddings.sharded import RowUpdate, ShardedTables, Traffic
from trainer.evaluation.metrics import auc, hit_at_k, log_loss
from trainer.loop import Observer, fit_epoch
from trainer.model.backbone import Backbone, load_pretrained_part
from trainer.model.losses import PretrainingObjective, RankingObjective
from trainer.model.ranker import Ranker
from trainer.model.vlm.tower import ENCODER
from trainer.recipe import GroupConfig, Recipe
from trainer.run_history import RunHistory
from trainer.run_state import RunState
from trainer.scoring import score
from trainer.semisync.evidence import Evidence
from trainer.semisync.forward import PrefetchingForward
from trainer.telemetry import Telemetry, serve
from trainer.thaw.arms import ArmPlan, plan_of
from trainer.thaw.canary import Canary, choose_slates
from trainer.thaw.controller import AlwaysAdapting, Thaw
from trainer.thaw.gate import Gate
from trainer.thaw.schedule import GroupSchedule
from trainer.tracing import traced

# Whole slates are scored together, whatever training was batched by; larger batches leave the CPU's caches.
_SCORING_BATCH_ROWS = 1024


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run leaves in memory: the network (alike on every rank), the tables (sharded) and the history."""

    ranker: Ranker
    tables: ShardedTables
    history: RunHistory


@contextmanager
def process_group(*, alone: bool = False) -> Iterator[torch.device]:
    """Joins a group of processes (nccl with GPUs, else gloo) and yields this rank's device.

    On CPU each rank computes with one thread: results are then the same to the bit, whatever the machine's cores, and
    more cores are used by more ranks.

    Args:
        alone: Whether this process is the whole group; otherwise ``torchrun`` describes it in the environment.
    """
    place: dict[str, Any] = {"store": HashStore(), "rank": 0, "world_size": 1} if alone else {}
    if torch.cuda.is_available():
        device = torch.device("cuda", 0 if alone else int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", **place)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(1)
        dist.init_process_group("gloo", **place)
    try:
        yield device
    finally:
        dist.destroy_process_group()


Passes = MutableMapping[Hashable, RunState]
"""States after the passes of runs of one case, by what shaped them; arms that begin alike share them."""


def pretrain(recipe: Recipe, source: Source, *, device: torch.device) -> Run:
    """Pretrains tables and two-tower network contrastively on the backbone's days."""
    ranker = _ranker(recipe, device)
    ranker.user_features.fit(map(torch.tensor, source.parts("user_features")))
    ranker.pin_features.fit(map(torch.tensor, source.parts("pin_features")))
    tables = _tables(recipe, device, seed=recipe.training.seed)
    forward = _forward(recipe, tables, device)
    objective = PretrainingObjective(ranker.two_tower, recipe.losses, num_ranks=dist.get_world_size())
    num_epochs = recipe.backbone.num_epochs
    schedule = GroupSchedule.of(GroupConfig(learning_rate=recipe.groups.network.learning_rate), num_epochs=num_epochs)
    optimizer = DenseOptimizer([Group(parameters=list(objective.parameters()), schedule=schedule)])
    wrapped = DistributedDataParallel(objective) if dist.get_world_size() > 1 else objective
    reader = _reader(recipe, source)
    history = _history(recipe, reader, num_epochs, title="pretrain")
    for epoch in range(num_epochs):
        history.begin_epoch()
        tables.take_traffic()
        fit_epoch(epoch, recipe, wrapped, forward, Gate(), AlwaysAdapting(), reader, optimizer, history, device=device)
        facts = _lookup_facts(forward.take_evidence(), tables.take_traffic())
        history.end_epoch(heldout={}, canary={}, lookup=facts, reader_wait_s=reader.take_wait_s())
    return Run(ranker=ranker, tables=tables, history=history)


def train(
    recipe: Recipe,
    source: Source,
    heldout: Source | None,
    backbone: Backbone,
    *,
    device: torch.device,
    passes: Passes | None = None,
    trace: Path | None = None,
) -> Run:
    """Trains a ranker from a backbone by the recipe's arm, and evaluates it on held-out rows after each pass.

    Args:
        recipe: What to train.
        source: The window.
        heldout: The rows to evaluate on after each pass; None to leave it to the caller.
        backbone: What to start from.
        device: Of this rank.
        passes: States that earlier runs left, on the same rows, backbone and recipe but for the arm; passes found in it
            are not made again, and those made are added.
        trace: Where rank 0 traces ``recipe.training.profile_steps`` steps of the last pass to.
    """
    training = _Training(recipe, source, backbone, device, trace)

    def judge() -> Mapping[str, float]:
        if heldout is None:
            return {}
        return evaluate(recipe, training.ranker, training.tables, heldout, shown=source, device=device)

    for epoch in range(training.plan.schedule.num_epochs):
        key = training.shaped_by(epoch + 1)
        if passes is not None and key in passes:
            training.restore(passes[key])
        else:
            training.make_pass(epoch, judge)
            if passes is not None:
                passes[key] = training.state()
        training.heed_the_canary()
    return Run(ranker=training.ranker, tables=training.tables, history=training.history)


class _Training:
    """The parts of one ranker's training."""

    def __init__(
        self, recipe: Recipe, source: Source, backbone: Backbone, device: torch.device, trace: Path | None
    ) -> None:
        self._recipe, self._device = recipe, device
        self._trace = trace if recipe.training.profile_steps and _is_first() else None
        self.plan: ArmPlan = plan_of(recipe)
        counts = _counts(source, recipe, self.plan, device)
        self.ranker = _ranker(recipe, device)
        load_pretrained_part(self.ranker, backbone.dense)
        self.tables = _tables_of(recipe, self.plan, counts, backbone, device)
        self._forward = _forward(recipe, self.tables, device)
        num_epochs = self.plan.schedule.num_epochs
        table_rates = replace(
            recipe.groups.tables, learning_rate=recipe.groups.tables.learning_rate * self.plan.rate_scale
        )
        self._thaw = Thaw(
            GroupSchedule(phase=self.plan.schedule, config=table_rates),
            recipe.thaw.state,
            self.tables,
            backbone_rows=backbone.rows,
            backbone_state=backbone.state,
            restores_rows=self.plan.restores_rows,
        )
        self._gate = Gate(
            self.plan.routes, row_dropout=self.plan.row_dropout, admission=self.plan.admission, counts=counts
        )
        slates = choose_slates(source, num_rows=recipe.guard.num_rows, seed=recipe.training.seed)
        self._canary = Canary(self.ranker, self.tables, source, slates, tables=recipe.tables, device=device)
        self._reader = _reader(recipe, source, slates=slates.trained)
        objective = RankingObjective(self.ranker, recipe.losses, num_ranks=dist.get_world_size())
        self._optimizer = DenseOptimizer(_groups(recipe, self.ranker, num_epochs=num_epochs))
        # A frozen encoder takes no part in the backward pass, which the wrapping would wait for.
        has_encoder = recipe.vlm.encoder != "none"
        self._objective = (
            DistributedDataParallel(objective, find_unused_parameters=has_encoder)
            if dist.get_world_size() > 1
            else objective
        )
        self.history = _history(recipe, self._reader, num_epochs, title=f"train ({recipe.thaw.arm})")

    def make_pass(self, epoch: int, evaluate: Callable[[], Mapping[str, float]]) -> None:
        num_steps_before = self._reader.num_steps(epoch - 1) if epoch else 1
        self._thaw.begin_epoch(epoch, last_progress=epoch - 1 + (num_steps_before - 1) / num_steps_before)
        self.history.begin_epoch()
        self.tables.take_traffic()  # of what came between the passes
        with self._observer(epoch) as observer:
            fit_epoch(
                epoch,
                self._recipe,
                self._objective,
                self._forward,
                self._gate,
                self._thaw,
                self._reader,
                self._optimizer,
                observer,
                device=self._device,
            )
        facts = _lookup_facts(self._forward.take_evidence(), self.tables.take_traffic())
        self.history.end_epoch(
            heldout=evaluate(),
            canary=self._canary.read().to_dict(),
            lookup=facts,
            reader_wait_s=self._reader.take_wait_s(),
        )

    def _observer(self, epoch: int) -> AbstractContextManager[Observer]:
        is_last = epoch + 1 == self.plan.schedule.num_epochs
        if self._trace is None or not is_last:
            return nullcontext(self.history)
        return traced(self.history, num_steps=self._recipe.training.profile_steps, path=self._trace)

    def heed_the_canary(self) -> None:
        """Re-freezes the tables before a coming pass when the recipe says so and the canary reads too much."""
        guard, history = self._recipe.guard, self.history
        is_last = len(history.epochs) == self.plan.schedule.num_epochs
        if not guard.refreeze or is_last or history.refrozen_at is not None:
            return
        # All ranks read the same but for rounding; one of them decides, or two might part at the threshold.
        decisive = [history.epochs[-1].canary["self_influence"]]
        dist.broadcast_object_list(decisive)
        reading = decisive[0]
        if reading > guard.max_self_influence:
            self._thaw.refreeze()
            history.refrozen_at = history.epochs[-1].epoch
            history.say(
                f"guard: self-influence {reading:.1%} of the loss is above {guard.max_self_influence:.1%} after epoch "
                f"{history.refrozen_at}: the tables go back to the backbone's rows and stay frozen"
            )

    def shaped_by(self, epoch: int) -> Hashable:
        """What shapes the first ``epoch`` passes and may differ between runs of one case."""
        groups = self._recipe.groups
        has_decay = any(group.decay != "none" for group in (groups.tables, groups.network, groups.vlm))
        guard = self._recipe.guard if self._recipe.guard.refreeze and epoch > 1 else None
        schedule = self.plan.schedule
        ends = (schedule.num_epochs, schedule.adapt_until) if has_decay else None
        return self.plan.through(epoch), guard, ends

    def state(self) -> RunState:
        return RunState.of(self.ranker, self._optimizer, self.tables, self.history)

    def restore(self, state: RunState) -> None:
        state.restore(self.ranker, self._optimizer, self.tables, self.history)


def evaluate(
    recipe: Recipe,
    ranker: Ranker,
    tables: ShardedTables,
    heldout: Source,
    *,
    shown: Source,
    device: torch.device,
) -> Mapping[str, float]:
    """Metrics of the save head on held-out rows, on rank 0; collective, empty on other ranks.

    Args:
        recipe: Of the run.
        ranker: The network.
        tables: The tables.
        heldout: The rows.
        shown: The window; the AUC of rows whose pin it never showed is told too, where there is one.
        device: Of this rank.
    """
    reader = SlateReader(
        heldout,
        batch_rows=_SCORING_BATCH_ROWS,
        seed=recipe.training.seed,
        rank=dist.get_rank(),
        num_ranks=dist.get_world_size(),
    )
    scores = score(ranker, tables, reader, tables=recipe.tables, device=device)
    parts: list[Any] | None = [None] * dist.get_world_size() if _is_first() else None
    dist.gather_object((reader.rows_of_rank(), scores[:, 0]), parts)
    if parts is None:
        return {}
    save = np.empty(heldout.num_rows, dtype=np.float32)
    for rows, part in parts:
        save[rows] = part
    labels = whole(heldout, "labels")[:, 0]
    hits = hit_at_k(save, labels, whole(heldout, "request_id"), recipe.evaluation.hit_k)
    metrics = {
        "save_auc": auc(save, labels),
        f"save_hit{recipe.evaluation.hit_k}": hits,
        "save_log_loss": log_loss(save, labels),
    }
    is_new = ~np.isin(whole(heldout, "pin_id"), shown.count_pins().pins)
    new_pins_auc = auc(save[is_new], labels[is_new])
    return metrics | ({"save_auc_new_pins": new_pins_auc} if np.isfinite(new_pins_auc) else {})


def _ranker(recipe: Recipe, device: torch.device) -> Ranker:
    torch.manual_seed(recipe.training.seed)
    return Ranker(recipe).to(device)


def _counts(source: Source, recipe: Recipe, plan: ArmPlan, device: torch.device) -> dict[str, Tensor]:
    """Impressions of each row by table, for the arms that ask: eight bytes a row, on each rank."""
    if not plan.counts_impressions:
        return {}
    return {table: count.to(device) for table, count in count_impressions(source, recipe.tables).items()}


def _tables_of(
    recipe: Recipe, plan: ArmPlan, counts: Mapping[str, Tensor], backbone: Backbone, device: torch.device
) -> ShardedTables:
    tables = _tables(recipe, device, row_update=plan.row_update, counts=counts)
    tables.load_rows(backbone.rows)
    tables.load_state(backbone.state)
    return tables


def _tables(
    recipe: Recipe,
    device: torch.device,
    *,
    seed: int | None = None,
    row_update: RowUpdate | None = None,
    counts: Mapping[str, Tensor] | None = None,
) -> ShardedTables:
    return ShardedTables(
        recipe.tables,
        learning_rate=recipe.groups.tables.learning_rate,
        device=device,
        seed=seed,
        row_update=row_update,
        counts=counts,
        precision=recipe.lookup.precision,
        can_refresh=recipe.lookup.mode == "exact",
    )


def _forward(recipe: Recipe, tables: ShardedTables, device: torch.device) -> PrefetchingForward:
    return PrefetchingForward(tables, mode=recipe.lookup.mode, device=device, depth=recipe.lookup.frozen_depth)


def _lookup_facts(evidence: Evidence, traffic: Traffic) -> dict[str, float]:
    """What `trainer.run_history.EpochRecord` tells of a pass's lookups."""
    return {
        "exposed_s": evidence.exposed_s,
        "hidden_share": evidence.hidden_share,
        "shared_ids": traffic.shared_ids,
        "num_collectives": traffic.num_collectives / evidence.num_steps,
        "num_bytes": traffic.num_bytes / evidence.num_steps,
    }


def _groups(recipe: Recipe, ranker: Ranker, *, num_epochs: int) -> list[Group]:
    network = [parameter for name, parameter in ranker.named_parameters() if not name.startswith(ENCODER)]
    groups = [Group(parameters=network, schedule=GroupSchedule.of(recipe.groups.network, num_epochs=num_epochs))]
    encoder = [parameter for name, parameter in ranker.named_parameters() if name.startswith(ENCODER)]
    if encoder:
        schedule = GroupSchedule.of(recipe.groups.vlm, num_epochs=num_epochs)
        groups.append(Group(parameters=encoder, schedule=schedule, freeze=ranker.freeze_vlm))
    return groups


def _reader(recipe: Recipe, source: Source, *, slates: Ints | None = None) -> SlateReader:
    return SlateReader(
        source,
        batch_rows=recipe.training.batch_rows,
        seed=recipe.training.seed,
        rank=dist.get_rank(),
        num_ranks=dist.get_world_size(),
        slates=slates,
    )


def _history(recipe: Recipe, reader: SlateReader, num_epochs: int, *, title: str) -> RunHistory:
    num_steps = [reader.num_steps(epoch) for epoch in range(num_epochs)]
    telemetry = Telemetry(recipe, num_steps=sum(num_steps)) if _is_first() and serve() else None
    return RunHistory(num_steps, title=title, is_shown=_is_first(), telemetry=telemetry)


def _is_first() -> bool:
    return dist.get_rank() == 0
