"""Puts the parts of a run together: a backbone's pretraining, and a ranker's training from a backbone.

Both expect an initialised process group (of one process, too) and run the same code on each of its ranks.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader
from trainer.embeddings.sharded import ShardedTables
from trainer.evaluation.metrics import auc, hit_at_k, log_loss
from trainer.loop import fit
from trainer.model.backbone import Backbone, load_pretrained_part
from trainer.model.losses import PretrainingObjective, RankingObjective
from trainer.model.ranker import Ranker
from trainer.recipe import Recipe
from trainer.run_history import RunHistory
from trainer.scoring import score
from trainer.thaw.arms import schedule_of
from trainer.thaw.controller import Thaw

# Whole slates are scored together, so that a step's memory does not depend on how training was batched.
_SCORING_BATCH_ROWS = 4096


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


def pretrain(recipe: Recipe, columns: Columns, *, device: torch.device) -> Run:
    """Pretrains tables and two-tower network contrastively on the backbone's days."""
    ranker, tables = _build(recipe, device)
    ranker.user_features.fit(torch.tensor(columns.user_features))
    ranker.pin_features.fit(torch.tensor(columns.pin_features))
    history = _fit(
        recipe,
        PretrainingObjective(ranker.two_tower, recipe.losses, num_ranks=dist.get_world_size()),
        tables,
        columns,
        num_epochs=recipe.backbone.num_epochs,
        adapts_at=lambda progress: True,
        evaluate=dict,
        title="pretrain",
        device=device,
    )
    return Run(ranker=ranker, tables=tables, history=history)


def train(recipe: Recipe, columns: Columns, heldout: Columns, backbone: Backbone, *, device: torch.device) -> Run:
    """Trains a ranker from a backbone by the recipe's arm, and evaluates it on held-out rows after each pass."""
    ranker, tables = _build(recipe, device)
    load_pretrained_part(ranker, backbone.dense)
    tables.load_rows(backbone.rows)
    tables.load_state(backbone.state)
    schedule = schedule_of(recipe.thaw)
    thaw = Thaw(schedule, recipe.thaw.state, tables, backbone.state)
    history = _fit(
        recipe,
        RankingObjective(ranker, recipe.losses, num_ranks=dist.get_world_size()),
        tables,
        columns,
        num_epochs=schedule.num_epochs,
        adapts_at=thaw.at,
        evaluate=lambda: evaluate(recipe, ranker, tables, heldout, device=device),
        title=f"train ({recipe.thaw.arm})",
        device=device,
    )
    return Run(ranker=ranker, tables=tables, history=history)


def evaluate(
    recipe: Recipe, ranker: Ranker, tables: ShardedTables, heldout: Columns, *, device: torch.device
) -> Mapping[str, float]:
    """Metrics of the save head on held-out rows, on rank 0; collective, empty on other ranks."""
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
    labels = heldout.labels[:, 0]
    hits = hit_at_k(save, labels, heldout.request_id, recipe.evaluation.hit_k)
    return {
        "save_auc": auc(save, labels),
        f"save_hit{recipe.evaluation.hit_k}": hits,
        "save_log_loss": log_loss(save, labels),
    }


def _build(recipe: Recipe, device: torch.device) -> tuple[Ranker, ShardedTables]:
    torch.manual_seed(recipe.training.seed)
    ranker = Ranker(recipe).to(device)
    return ranker, ShardedTables(recipe.tables, device=device, seed=recipe.training.seed)


def _fit(
    recipe: Recipe,
    objective: nn.Module,
    tables: ShardedTables,
    columns: Columns,
    *,
    num_epochs: int,
    adapts_at: Callable[[float], bool],
    evaluate: Callable[[], Mapping[str, float]],
    title: str,
    device: torch.device,
) -> RunHistory:
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    reader = SlateReader(
        columns,
        batch_rows=recipe.training.batch_rows,
        seed=recipe.training.seed,
        rank=rank,
        num_ranks=num_ranks,
    )
    num_steps = [reader.num_steps(epoch) for epoch in range(num_epochs)]
    history = RunHistory(num_steps, evaluate=evaluate, title=title, is_shown=_is_first())
    fit(
        DistributedDataParallel(objective) if num_ranks > 1 else objective,
        tables,
        reader,
        _dense_optimizer(recipe, objective),
        history,
        tables=recipe.tables,
        num_epochs=num_epochs,
        adapts_at=adapts_at,
        device=device,
    )
    return history


def _dense_optimizer(recipe: Recipe, objective: nn.Module) -> torch.optim.Optimizer:
    parameters = cast("list[nn.Parameter]", [p for p in objective.parameters() if p.requires_grad])
    return torch.optim.Adam(parameters, lr=recipe.training.learning_rate, fused=True)


def _is_first() -> bool:
    return dist.get_rank() == 0
