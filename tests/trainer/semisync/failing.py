"""A loop of two ranks of which one fails: ``torchrun --nproc-per-node=2 -m tests.trainer.semisync.failing WHERE``."""

import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.dense_optimizer import DenseOptimizer, Group
from trainer.embeddings.lookup import Ids, Rows
from trainer.embeddings.sharded import Sent, ShardedTables
from trainer.loop import fit_epoch
from trainer.model.losses import Losses, RankingObjective
from trainer.model.ranker import Ranker
from trainer.run_history import RunHistory
from trainer.runs import process_group
from trainer.semisync.forward import PrefetchingForward
from trainer.thaw.controller import AlwaysAdapting
from trainer.thaw.gate import Gate
from trainer.thaw.schedule import GroupSchedule

RECIPE = tiny.recipe()


class FailingObjective(RankingObjective):
    """Fails on rank 1 in its fourth step."""

    num_steps = 0

    def forward(self, batch: Batch, rows: Rows) -> Losses:
        self.num_steps += 1
        if self.num_steps == 4 and dist.get_rank() == 1:
            raise ArithmeticError("the loss is no number")
        return super().forward(batch, rows)


class FailingTables(ShardedTables):
    """Fails on rank 1 when the fourth batch is sent."""

    num_sent = 0

    def send(self, ids: Ids) -> Sent:
        self.num_sent += 1
        if self.num_sent == 4 and dist.get_rank() == 1:
            raise ArithmeticError("an id is no number")
        return super().send(ids)


class FailingReader(SlateReader):
    """Fails on rank 1 when the fourth batch is read."""

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        for number, batch in enumerate(super().epoch(epoch, first_step)):
            if number == 3 and dist.get_rank() == 1:
                raise ArithmeticError("a row is no number")
            yield batch


def main(where: str) -> None:
    """Trains until it fails."""
    with process_group() as device:
        columns = tiny.columns(num_slates=60)
        kind = FailingReader if where == "reader" else SlateReader
        reader = kind(columns, batch_rows=16, seed=0, rank=dist.get_rank(), num_ranks=2)
        tables_kind = FailingTables if where == "lookup" else ShardedTables
        tables = tables_kind(RECIPE.tables, learning_rate=0.1, device=device, seed=1)
        objective_kind = FailingObjective if where == "network" else RankingObjective
        objective = objective_kind(Ranker(RECIPE), RECIPE.losses, num_ranks=2)
        wrapped = torch.nn.parallel.DistributedDataParallel(objective)
        schedule = GroupSchedule.of(RECIPE.groups.network, num_epochs=1)
        history = RunHistory([reader.num_steps(0)], title="failing", is_shown=False)
        history.begin_epoch()
        fit_epoch(
            0,
            RECIPE,
            wrapped,
            PrefetchingForward(tables, mode="semi", device=device),
            Gate(),
            AlwaysAdapting(),
            reader,
            DenseOptimizer([Group(parameters=list(objective.parameters()), schedule=schedule)]),
            history,
            device=device,
        )


if __name__ == "__main__":
    main(sys.argv[1])
