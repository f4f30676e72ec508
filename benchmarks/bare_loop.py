"""Our loop against a bare one: the same model, losses, batches and optimizers, one rank, nothing in between.

They take turns step by step, on the same batch: the machine's speed changes from second to second, by more than the two
differ, but hardly from one step to the next.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import islice
from typing import Any

import torch

from pipelines.recipes import find_recipe
from trainer.batches.batch import Batch
from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader
from trainer.dense_optimizer import DenseOptimizer, Group
from trainer.embeddings.fused import fused_rows
from trainer.embeddings.hashing import hash_rows
from trainer.embeddings.lookup import CANDIDATE, HISTORY, TABLE_OF_SITE, USER, Ids, Rows, num_rows_of
from trainer.embeddings.sharded import ShardedTables
from trainer.loop import fit_epoch
from trainer.model.losses import RankingObjective
from trainer.model.ranker import Ranker
from trainer.recipe import Recipe, TablesConfig
from trainer.run_history import RunHistory
from trainer.runs import process_group
from trainer.semisync.forward import PrefetchingForward
from trainer.thaw.controller import AlwaysAdapting
from trainer.thaw.gate import Gate
from trainer.thaw.schedule import GroupSchedule
from trainer.windows.manifest import load_partition
from trainer.windows.preparation import prepare_day

STORE = ".thawline"
FIRST_DAY, NUM_DAYS = date(2017, 11, 1), 5


class LocalTables:
    """Fused rows in this process alone, called as directly as they can be."""

    def __init__(self, config: TablesConfig, *, learning_rate: float) -> None:
        self._first = dict(zip(num_rows_of(config), (0, config.num_user_rows), strict=True))
        self._rows = fused_rows(
            sum(num_rows_of(config).values()), config.dim, learning_rate=learning_rate, device=torch.device("cpu")
        )
        self._rows.rows_SD.uniform_(-0.1, 0.1)

    def read_ids(self, ids: Ids) -> Rows:
        """Rows of ids; a backward pass through them updates the tables."""
        slots = torch.cat([of_site + self._first[TABLE_OF_SITE[site]] for site, of_site in ids.items()])
        rows = self._rows.look_up(slots)
        return dict(zip(ids, torch.split(rows, [len(of_site) for of_site in ids.values()]), strict=True))

    def send(self, ids: Ids) -> Ids:
        """Nothing to send."""
        return ids

    def read(self, sent: Ids, *, adapting: bool) -> Rows:
        """See `trainer.embeddings.lookup.Lookup.read`."""
        with torch.set_grad_enabled(adapting):
            return self.read_ids(sent)

    def settle(self) -> None:
        """Nothing to do."""


def loop_vs_bare(*, num_rounds: int, num_steps: int) -> dict[str, Any]:
    """The median, over rounds, of the time that our loop's steps take together over that of the bare loop's steps."""
    recipe = find_recipe("complete_journey")
    days = [prepare_day(recipe, FIRST_DAY + timedelta(days=index), STORE) for index in range(NUM_DAYS)]
    columns = Columns.read([load_partition(day) for day in days], recipe)
    reader = SlateReader(columns, batch_rows=recipe.training.batch_rows, seed=0)
    with process_group(alone=True) as device:
        bare = _Bare(recipe)
        turns = _Turns(list(islice(reader.epoch(0), num_steps)), bare)
        ours = _Ours(recipe, turns, device)
        rounds = [_timed_s(ours, turns) for _ in range(num_rounds + 1)][1:]
    return {
        "loop_vs_bare": round(statistics.median(ours_s / bare_s for ours_s, bare_s in rounds), 4),
        "loop_ms": round(1000 * statistics.median(ours_s for ours_s, _ in rounds) / num_steps, 3),
        "bare_ms": round(1000 * statistics.median(bare_s for _, bare_s in rounds) / num_steps, 3),
    }


class _Turns(SlateReader):
    """A reader of batches in memory that, whenever it is asked for one, first has the bare loop take it."""

    def __init__(self, batches: Sequence[Batch], bare: "_Bare") -> None:
        self._kept, self._bare = batches, bare
        self.bare_s = 0.0

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        for batch in self._kept[first_step:]:
            began_s = time.perf_counter()
            self._bare.step(batch)
            self.bare_s += time.perf_counter() - began_s
            yield batch

    def num_steps(self, epoch: int) -> int:
        return len(self._kept)


class _Ours:
    def __init__(self, recipe: Recipe, reader: SlateReader, device: torch.device) -> None:
        self._recipe, self._reader, self._device = recipe, reader, device
        rate = recipe.groups.tables.learning_rate
        tables = ShardedTables(recipe.tables, learning_rate=rate, device=device, seed=0)
        self._forward = PrefetchingForward(tables, mode="sync", device=device)
        self._objective = _objective(recipe)
        schedule = GroupSchedule.of(recipe.groups.network, num_epochs=1)
        self._optimizer = DenseOptimizer([Group(parameters=list(self._objective.parameters()), schedule=schedule)])

    def run(self) -> None:
        history = RunHistory([self._reader.num_steps(0)], title="loop", is_shown=False)
        history.begin_epoch()
        fit_epoch(
            0,
            self._recipe,
            self._objective,
            self._forward,
            Gate(),
            AlwaysAdapting(),
            self._reader,
            self._optimizer,
            history,
            device=self._device,
        )


class _Bare:
    def __init__(self, recipe: Recipe) -> None:
        self._sizes = recipe.tables
        self._tables = LocalTables(recipe.tables, learning_rate=recipe.groups.tables.learning_rate)
        self._objective = _objective(recipe)
        self._adam = torch.optim.Adam(self._objective.parameters(), lr=recipe.groups.network.learning_rate, fused=True)

    def step(self, batch: Batch) -> None:
        sizes = self._sizes
        rows = self._tables.read_ids(
            {
                USER: hash_rows(batch.user_ids_B, num_rows=sizes.num_user_rows, seed=sizes.hash_seed),
                CANDIDATE: hash_rows(batch.pin_ids_B, num_rows=sizes.num_pin_rows, seed=sizes.hash_seed),
                HISTORY: hash_rows(batch.history_ids_N, num_rows=sizes.num_pin_rows, seed=sizes.hash_seed),
            }
        )
        self._adam.zero_grad()
        losses = self._objective(batch, rows)
        torch.autograd.backward(torch.stack(list(losses.values())).sum())
        self._adam.step()


def _objective(recipe: Recipe) -> RankingObjective:
    torch.manual_seed(0)
    return RankingObjective(Ranker(recipe), recipe.losses, num_ranks=1)


def _timed_s(ours: _Ours, turns: _Turns) -> tuple[float, float]:
    """Seconds of our loop over a pass, and of the bare loop's steps within it, which are not ours."""
    turns.bare_s = 0.0
    began_s = time.perf_counter()
    ours.run()
    return time.perf_counter() - began_s - turns.bare_s, turns.bare_s
