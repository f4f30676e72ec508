"""What the tables would cost on a cluster that is not here: shards, memory, bytes and time of a step.

Shards, memory and bytes are arithmetic on what the trainer does (`trainer.embeddings.sharded`). Bytes are an upper
bound: they count every id, as if none came twice in a rank's batch. Times are TorchRec's prediction
(`trainer.embeddings.planner`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from trainer.embeddings.layout import Layout
from trainer.embeddings.lookup import CANDIDATE, HISTORY, PIN_TABLE, USER, USER_TABLE, num_rows_of
from trainer.embeddings.planner import (
    GIB,
    MAX_GPUS,
    RESERVED_SHARE,
    SLOT_BYTES,
    Cluster,
    StepTime,
    TablePlan,
    estimate,
    gradient_bytes,
    row_bytes,
)
from trainer.errors import InputError
from trainer.recipe import Recipe, TablesConfig
from trainer.thaw.arms import plan_of

_FLOAT_BYTES, _INT64_BYTES, _INT32_BYTES = 4, 8, 4
_MAX_SLOTS = 2**31  # they travel as int32
_DIM_STEP = 4  # FBGEMM's tables want multiples of it
_FIELDS = {USER_TABLE: "num_user_rows", PIN_TABLE: "num_pin_rows"}


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What the fullest GPU holds while it trains, in bytes.

    Attributes:
        rows: Shards of all tables.
        optimizer: Their row-wise Adagrad sums.
        bookkeeping: What ``lookup.mode=exact`` and some arms remember of each row of a shard.
        impressions: Counts of every row of every table, which each rank of some arms holds whole (`trainer.runs`).
        lookups: Rows of the batches that are looked up at once, as they came and as they are read, and their places.
    """

    rows: int
    optimizer: int
    bookkeeping: int
    impressions: int
    lookups: int

    @property
    def needed(self) -> int:
        """All together."""
        return self.rows + self.optimizer + self.bookkeeping + self.impressions + self.lookups


@dataclass(frozen=True, kw_only=True)
class StepBytes:
    """What one GPU sends to others in a step that adapts the tables, at most; while they are frozen no gradients.

    Attributes:
        counts: How many ids follow.
        ids: Slots of the rows that it asks for.
        rows: Rows that others asked it for.
        gradients: Gradients of the rows that it asked for.
    """

    counts: int
    ids: int
    rows: int
    gradients: int

    @property
    def total(self) -> int:
        """All together."""
        return self.counts + self.ids + self.rows + self.gradients


@dataclass(frozen=True, kw_only=True)
class TablesPlan:
    """The plan and its cost.

    Attributes:
        cluster: That it is for.
        tables: By table.
        batch_rows_per_gpu: Impressions of a step on the fullest rank.
        lookups_per_row: Ids that an impression looks up.
        memory: Of the fullest GPU.
        planner_bytes: TorchRec's own estimate of that: rows, optimizer state, one batch's int64 ids and float32 rows.
        sent: By one GPU in a step.
        time: Of a step.
    """

    cluster: Cluster
    tables: tuple[TablePlan, ...]
    batch_rows_per_gpu: int
    lookups_per_row: int
    memory: Memory
    planner_bytes: int
    sent: StepBytes
    time: StepTime

    def exposed_ms(self, step_ms: float, *, adapting: bool) -> float:
        """What a step waits for when lookups run beside a network that takes ``step_ms`` (``lookup.mode=semi``).

        While tables adapt, the update of the step before runs ahead of the lookup on the same lane
        (`trainer.semisync.forward`), so the network must hide both.
        """
        return max(0.0, self.lane_ms(adapting=adapting) - step_ms)

    def lane_ms(self, *, adapting: bool) -> float:
        """What runs beside the network: a step of it that takes as long hides it all."""
        return self.time.lookup_ms + (self.time.update_ms if adapting else 0.0)


def plan_tables(recipe: Recipe, cluster: Cluster) -> TablesPlan:
    """Plans a recipe's tables.

    Raises:
        InputError: They do not fit, or cannot be trained on GPUs.
    """
    dim = recipe.tables.dim
    if dim % _DIM_STEP:
        raise InputError(
            f"recipe '{recipe.name}': tables.dim {dim} is no multiple of {_DIM_STEP}, which FBGEMM wants; choose one"
        )
    if not _fits(recipe, recipe.tables, cluster, cluster.num_gpus):
        raise InputError(_refusal(recipe, cluster))
    tables, batch_rows_per_gpu = _table_plans(recipe.tables, cluster.num_gpus), _batch_rows(recipe, cluster.num_gpus)
    predicted = estimate(
        cluster,
        tables,
        batch_rows_per_gpu=batch_rows_per_gpu,
        lookups_of_site=_lookups_of_site(recipe),
        precision=recipe.lookup.precision,
    )
    return TablesPlan(
        cluster=cluster,
        tables=tables,
        batch_rows_per_gpu=batch_rows_per_gpu,
        lookups_per_row=sum(_lookups_of_site(recipe).values()),
        memory=_memory(recipe, recipe.tables, cluster.num_gpus),
        planner_bytes=predicted.num_bytes,
        sent=_step_bytes(recipe, cluster.num_gpus),
        time=predicted.time,
    )


def _lookups_of_site(recipe: Recipe) -> dict[str, int]:
    return {USER: 1, CANDIDATE: 1, HISTORY: recipe.model.history_length}


def _batch_rows(recipe: Recipe, num_gpus: int) -> int:
    return -(-recipe.training.batch_rows // num_gpus)


def _num_lookups(recipe: Recipe, num_gpus: int) -> int:
    return _batch_rows(recipe, num_gpus) * sum(_lookups_of_site(recipe).values())


def _table_plans(tables: TablesConfig, num_gpus: int) -> tuple[TablePlan, ...]:
    layout = Layout(num_rows_of(tables), num_ranks=num_gpus)
    plans = []
    for name, num_rows in num_rows_of(tables).items():
        slots = layout.slots_of(name)
        rows_per_gpu = slots.stop - slots.start
        num_bytes = rows_per_gpu * (tables.dim + 1) * _FLOAT_BYTES
        plans.append(
            TablePlan(name=name, num_rows=num_rows, dim=tables.dim, rows_per_gpu=rows_per_gpu, bytes_per_gpu=num_bytes)
        )
    return tuple(plans)


def _num_slots(tables: TablesConfig, num_gpus: int) -> int:
    return Layout(num_rows_of(tables), num_ranks=num_gpus).num_slots


def _memory(recipe: Recipe, tables: TablesConfig, num_gpus: int) -> Memory:
    num_slots, lookup = _num_slots(tables, num_gpus), recipe.lookup
    # exact: which update touched a row last. A row update: at which step, and the row's impressions.
    slot_bytes, arm = _INT32_BYTES if lookup.mode == "exact" else 0, plan_of(recipe)
    if arm.row_update is not None:
        slot_bytes += _INT32_BYTES + _INT64_BYTES
    num_batches = 1 if lookup.mode == "sync" else 1 + lookup.frozen_depth
    return Memory(
        rows=num_slots * tables.dim * _FLOAT_BYTES,
        optimizer=num_slots * _FLOAT_BYTES,
        bookkeeping=num_slots * slot_bytes,
        impressions=sum(num_rows_of(tables).values()) * _INT64_BYTES if arm.counts_impressions else 0,
        lookups=num_batches * _num_lookups(recipe, num_gpus) * 2 * (tables.dim * _FLOAT_BYTES + _INT64_BYTES),
    )


def _step_bytes(recipe: Recipe, num_gpus: int) -> StepBytes:
    # Ids are hashed, so they spread evenly over the ranks.
    num_leaving = -(-_num_lookups(recipe, num_gpus) * (num_gpus - 1) // num_gpus)
    dim, precision = recipe.tables.dim, recipe.lookup.precision
    return StepBytes(
        counts=(num_gpus - 1) * _INT64_BYTES,
        ids=num_leaving * SLOT_BYTES,
        rows=num_leaving * row_bytes(dim, precision),
        gradients=num_leaving * gradient_bytes(dim, precision),
    )


def _fits(recipe: Recipe, tables: TablesConfig, cluster: Cluster, num_gpus: int) -> bool:
    return (
        _num_slots(tables, num_gpus) <= _MAX_SLOTS and _memory(recipe, tables, num_gpus).needed <= cluster.usable_bytes
    )


def _refusal(recipe: Recipe, cluster: Cluster) -> str:
    largest = max(_table_plans(recipe.tables, cluster.num_gpus), key=lambda table: table.bytes_per_gpu)
    needed, usable = _memory(recipe, recipe.tables, cluster.num_gpus).needed, cluster.usable_bytes
    if needed > usable:
        why = (
            f"{_gib(needed)} GiB a GPU needed, {_gib(usable)} there ({RESERVED_SHARE:.0%} of {cluster.hbm_gib:g} kept "
            f"back), {_gib(needed - usable)} too much"
        )
    else:
        num_slots = _num_slots(recipe.tables, cluster.num_gpus)
        why = f"{num_slots:,} rows a GPU, {num_slots - _MAX_SLOTS:,} more than 32-bit row numbers reach"
    remedies = ", or ".join(_remedies(recipe, cluster, largest)) or f"neither {MAX_GPUS} GPUs nor one smaller table"
    return (
        f"recipe '{recipe.name}' does not fit on {cluster.num_gpus} GPUs: {why}; largest table '{largest.name}', "
        f"{largest.num_rows:,} rows of {largest.dim}, {_gib(largest.bytes_per_gpu)} GiB a GPU; would do: {remedies}"
    )


def _remedies(recipe: Recipe, cluster: Cluster, largest: TablePlan) -> Iterator[str]:
    """Each of them alone makes the tables fit."""
    tables, field = recipe.tables, _FIELDS[largest.name]
    num_gpus = _enough_gpus(recipe, cluster)
    if num_gpus is not None:
        yield f"--gpus {num_gpus}"

    def refuses(**sizes: int) -> bool:
        return not _fits(recipe, replace(tables, **sizes), cluster, cluster.num_gpus)

    too_wide = _smallest(lambda steps: refuses(dim=steps * _DIM_STEP), tables.dim // _DIM_STEP)
    for dim in range(((too_wide or 1) - 1) * _DIM_STEP, 0, -_DIM_STEP):
        if not 2 * dim % recipe.model.num_attention_heads:
            yield f"--set tables.dim={dim}"
            break
    too_many = _smallest(lambda rows: refuses(**{field: rows}), largest.num_rows)
    if too_many is not None and too_many > 1:
        yield f"--set tables.{field}={too_many - 1}"


def _enough_gpus(recipe: Recipe, cluster: Cluster) -> int | None:
    """The fewest GPUs that would do: whole hosts, or a part of one."""
    size = cluster.gpus_per_host
    num_hosts = _smallest(lambda hosts: _fits(recipe, recipe.tables, cluster, hosts * size), MAX_GPUS // size)
    if num_hosts is None or num_hosts > 1:
        return num_hosts and num_hosts * size
    return _smallest(lambda gpus: _fits(recipe, recipe.tables, cluster, gpus), size)


def _smallest(holds: Callable[[int], bool], limit: int) -> int | None:
    """The smallest number from 1 to the limit for which something holds that holds for all larger ones too."""
    if not holds(limit):
        return None
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:,.3f}"
