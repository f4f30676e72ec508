"""Plans against arithmetic written out by hand, and against what tables of two ranks hold and send."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.trainer.conftest import Ranks
from trainer.embeddings.exchange import Precision
from trainer.embeddings.lookup import CANDIDATE, HISTORY, USER, look_up
from trainer.embeddings.planner import Cluster, StepTime
from trainer.embeddings.planning import Memory, StepBytes, TablesPlan, plan_tables
from trainer.embeddings.sharded import ShardedTables
from trainer.errors import InputError
from trainer.recipe import LogsConfig, LookupConfig, ModelConfig, Recipe, TablesConfig, ThawConfig, TrainingConfig

GIB = 2**30
# 600 GiB/s, 12.5 GiB/s and 897 GiB/s in bytes a millisecond.
INTRA, INTER, HBM = 644_245_094.4, 13_421_772.8, 963_146_416.128
SMALL = Recipe(
    name="small",
    logs=LogsConfig(uri="nowhere", num_user_features=1, num_pin_features=1),
    tables=TablesConfig(num_user_rows=10, num_pin_rows=21, dim=4),
    model=ModelConfig(history_length=3),
    training=TrainingConfig(batch_rows=10),
    lookup=LookupConfig(mode="sync"),
)
FOUR = Cluster(num_gpus=4, hbm_gib=1.0)
FEED = replace(
    SMALL,
    name="feed",
    tables=TablesConfig(num_user_rows=500_000_000, num_pin_rows=4_000_000_000, dim=64),
    model=ModelConfig(history_length=98),
    training=TrainingConfig(batch_rows=65_536),
)


def sized(**sizes: int) -> Recipe:
    return replace(FEED, tables=replace(FEED.tables, **sizes))


@pytest.fixture(scope="module")
def small() -> TablesPlan:
    return plan_tables(SMALL, FOUR)


def test_shards_and_memory_of_a_small_plan(small: TablesPlan) -> None:
    assert [(table.name, table.rows_per_gpu, table.bytes_per_gpu) for table in small.tables] == [
        ("user", 3, 3 * (4 * 4 + 4)),  # 10 rows over 4 ranks: 3, 3, 3, 1
        ("pin", 6, 6 * (4 * 4 + 4)),  # 21: 6, 6, 6, 3
    ]
    assert (small.batch_rows_per_gpu, small.lookups_per_row) == (3, 5)  # 10 over 4; user, candidate, 3 of the history
    assert small.memory == Memory(
        rows=9 * 16,
        optimizer=9 * 4,
        bookkeeping=0,
        impressions=0,
        lookups=15 * 2 * (16 + 8),
    )
    assert small.memory.needed == 144 + 36 + 720
    # TorchRec: rows and sums of 3 and 6 rows, and for 15 lookups an int64 id and a float32 row.
    assert small.planner_bytes == 9 * (16 + 4) + 15 * (8 + 16)


def test_bytes_of_a_small_plan(small: TablesPlan) -> None:
    # Of 15 lookups, three quarters leave: 11.25, so 12 at most.
    assert small.sent == StepBytes(counts=3 * 8, ids=12 * 4, rows=12 * 16, gradients=12 * 16)
    assert small.sent.total == 24 + 48 + 192 + 192


def test_times_of_a_small_plan(small: TablesPlan) -> None:
    assert small.time.ids_ms == pytest.approx(11.25 * 4 / INTRA)
    assert small.time.rows_ms == pytest.approx(11.25 * 16 / INTRA)
    assert small.time.gradients_ms == pytest.approx(11.25 * 16 / INTRA)
    # TorchRec: an int64 id, a row read, a row written; twice that on the way back.
    assert small.time.gather_ms == pytest.approx(15 * (8 + 16 + 16) / HBM)
    assert small.time.scatter_ms == pytest.approx(2 * 15 * (8 + 16 + 16) / HBM)
    assert small.time.lookup_ms == pytest.approx(11.25 * 20 / INTRA + 15 * 40 / HBM)


def test_a_lone_gpu_sends_nothing() -> None:
    plan = plan_tables(SMALL, Cluster(num_gpus=1, hbm_gib=1.0))
    assert plan.sent.total == plan.time.ids_ms == plan.time.rows_ms == plan.time.gradients_ms == 0
    assert [table.rows_per_gpu for table in plan.tables] == [10, 21]


@pytest.mark.parametrize(
    ("precision", "row", "gradient"), [("fp32", 16, 16), ("fp16", 8, 8), ("bf16", 8, 8), ("int8", 4 + 8, 8)]
)
def test_rows_travel_in_the_recipes_precision(precision: Precision, row: int, gradient: int) -> None:
    plan = plan_tables(replace(SMALL, lookup=LookupConfig(mode="sync", precision=precision)), FOUR)
    assert plan.sent == StepBytes(counts=24, ids=48, rows=12 * row, gradients=12 * gradient)
    assert plan.time.rows_ms == pytest.approx(11.25 * row / INTRA)
    assert plan.time.gradients_ms == pytest.approx(11.25 * gradient / INTRA)


PAIR = replace(
    SMALL,
    tables=TablesConfig(num_user_rows=7, num_pin_rows=16, dim=4),
    model=ModelConfig(history_length=2),
    training=TrainingConfig(batch_rows=4),
)


def send_on_a_rank(precision: Precision) -> tuple[int, dict[str, int]]:
    """Bytes that a rank sends in a step whose ids differ and spread evenly, and bytes that its tables take."""
    tables = ShardedTables(PAIR.tables, learning_rate=0.1, device=torch.device("cpu"), seed=1, precision=precision)
    ids = {
        USER: torch.tensor([0, 4]),
        CANDIDATE: torch.tensor([0, 8]),
        HISTORY: torch.tensor([1, 9, 2, 10]),
    }
    rows = look_up(tables, ids, adapting=True)
    torch.cat(list(rows.values())).sum().backward()  # type: ignore[no-untyped-call]
    held = {name: values.numel() * values.element_size() for name, values in tables.local_state().items()}
    return tables.take_traffic().num_bytes, held


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_the_trainer_holds_and_sends_what_is_planned(two_ranks: Ranks, precision: Precision) -> None:
    recipe = replace(PAIR, lookup=LookupConfig(precision=precision))
    plan = plan_tables(recipe, Cluster(num_gpus=2, hbm_gib=1.0))
    for num_bytes, held in two_ranks(send_on_a_rank, precision):
        assert num_bytes == plan.sent.total
        assert held == {"rows": plan.memory.rows, "state": plan.memory.optimizer}


@pytest.mark.parametrize(("mode", "num_batches"), [("sync", 1), ("semi", 4), ("exact", 4)])
def test_what_runs_ahead_takes_memory(small: TablesPlan, mode: Any, num_batches: int) -> None:
    plan = plan_tables(replace(SMALL, lookup=LookupConfig(mode=mode, frozen_depth=3)), FOUR)
    assert plan.memory.lookups == num_batches * small.memory.lookups
    assert plan.memory.bookkeeping == (9 * 4 if mode == "exact" else 0)


def test_an_arm_with_a_row_update_takes_memory() -> None:
    # Nine slots: the step of the last update, int32, and impressions, int64.
    assert plan_tables(replace(SMALL, thaw=ThawConfig(arm="frequency_lr")), FOUR).memory.bookkeeping == 9 * 12
    assert plan_tables(replace(SMALL, thaw=ThawConfig(arm="frequency_thaw")), FOUR).memory.bookkeeping == 0


@pytest.mark.parametrize("arm", ["frequency_lr", "min_count", "frequency_thaw"])
def test_an_arm_that_counts_impressions_holds_all_of_them(arm: Any) -> None:
    assert plan_tables(replace(SMALL, thaw=ThawConfig(arm=arm)), FOUR).memory.impressions == 31 * 8


def test_billions_of_rows_on_8_gpus() -> None:
    plan = plan_tables(FEED, Cluster(num_gpus=8, hbm_gib=288.0))
    num_lookups = 65_536 // 8 * 100
    assert [table.rows_per_gpu for table in plan.tables] == [62_500_000, 500_000_000]
    assert plan.memory.rows == 562_500_000 * 256
    assert plan.sent.rows == num_lookups * 7 // 8 * 256
    assert plan.time.rows_ms == pytest.approx(num_lookups * 7 / 8 * 256 / INTRA)


def test_billions_of_rows_on_256_gpus() -> None:
    plan = plan_tables(FEED, Cluster(num_gpus=256, hbm_gib=80.0))
    num_lookups = 65_536 // 256 * 100
    assert plan.cluster.num_hosts == 32
    assert [table.rows_per_gpu for table in plan.tables] == [1_953_125, 15_625_000]
    assert plan.sent.counts == 255 * 8
    assert plan.sent.rows == num_lookups * 255 // 256 * 256
    # Ids take no longer than a rank sends them, whatever the number of ranks; links between hosts are the slow ones.
    assert plan.time.ids_ms == pytest.approx(num_lookups * 255 / 256 * 4 / INTER)
    assert plan.time.rows_ms == pytest.approx(num_lookups * 255 / 256 * 256 / INTER)


def test_bandwidths_are_gigabits() -> None:
    # 1 Gbit/s is 125,000 bytes a millisecond.
    within = plan_tables(SMALL, replace(FOUR, intra_gbps=1.0, inter_gbps=7.0))
    between = plan_tables(SMALL, replace(FOUR, gpus_per_host=2, intra_gbps=7.0, inter_gbps=1.0))
    assert within.time.rows_ms == between.time.rows_ms == pytest.approx(11.25 * 16 / 125_000)


def test_more_gpus_cost_each_less() -> None:
    plans = [plan_tables(FEED, Cluster(num_gpus=num, hbm_gib=800.0)) for num in (8, 16, 64, 128)]
    for fewer, more in pairwise(plans):
        assert more.memory.needed < fewer.memory.needed
        assert more.planner_bytes < fewer.planner_bytes
        assert more.sent.total < fewer.sent.total
        assert more.time.gather_ms < fewer.time.gather_ms


@pytest.mark.parametrize(
    "larger",
    [
        replace(FEED, training=TrainingConfig(batch_rows=131_072)),
        replace(FEED, model=ModelConfig(history_length=198)),
        sized(dim=128),
    ],
    ids=["batch", "history", "dim"],
)
def test_larger_recipes_cost_more(larger: Recipe) -> None:
    cluster = Cluster(num_gpus=64, hbm_gib=288.0)
    small, large = plan_tables(FEED, cluster), plan_tables(larger, cluster)
    assert large.memory.needed > small.memory.needed
    assert large.sent.total > small.sent.total
    assert large.time.lookup_ms > small.time.lookup_ms
    assert large.time.update_ms > small.time.update_ms


def test_what_a_step_waits_for(small: TablesPlan) -> None:
    time = StepTime(ids_ms=1.0, gather_ms=2.0, rows_ms=4.0, gradients_ms=8.0, scatter_ms=16.0)
    plan = replace(small, time=time)
    assert (plan.lane_ms(adapting=False), plan.lane_ms(adapting=True)) == (7.0, 31.0)
    assert [plan.exposed_ms(step_ms, adapting=False) for step_ms in (0.0, 5.0, 7.0, 9.0)] == [7.0, 2.0, 0.0, 0.0]
    assert [plan.exposed_ms(step_ms, adapting=True) for step_ms in (0.0, 5.0, 31.0, 40.0)] == [31.0, 26.0, 0.0, 0.0]


def refusal(recipe: Recipe, cluster: Cluster) -> str:
    with pytest.raises(InputError) as refused:
        plan_tables(recipe, cluster)
    return str(refused.value)


def test_a_refusal_says_by_how_much() -> None:
    told = refusal(FEED, Cluster(num_gpus=16, hbm_gib=80.0))
    slots = 31_250_000 + 250_000_000
    needed = slots * 260 + 65_536 // 16 * 100 * 2 * (256 + 8)
    assert f"{needed / GIB:.3f} GiB a GPU needed, 68.000 there" in told
    assert f"{needed / GIB - 68:.3f} too much" in told
    assert f"largest table 'pin', 4,000,000,000 rows of 64, {250_000_000 * 260 / GIB:.3f} GiB a GPU" in told
    assert "\n" not in told


def test_the_user_table_may_be_the_largest() -> None:
    told = refusal(sized(num_user_rows=5_000_000_000), Cluster(num_gpus=32, hbm_gib=80.0))
    assert "largest table 'user'" in told
    assert "--set tables.num_user_rows=" in told


def test_what_a_refusal_proposes_would_do_and_nothing_larger() -> None:
    cluster = Cluster(num_gpus=16, hbm_gib=80.0)
    told = refusal(FEED, cluster)
    gpus, dim, rows = (
        int(re.search(rf"{option}[ =](\d+)", told)[1])  # type: ignore[index]
        for option in ("--gpus", "tables.dim", "tables.num_pin_rows")
    )
    plan_tables(FEED, replace(cluster, num_gpus=gpus))
    assert f"--gpus {gpus}" in refusal(FEED, replace(cluster, num_gpus=gpus - 8))
    plan_tables(sized(dim=dim), cluster)
    assert f"tables.dim={dim}" in refusal(sized(dim=dim + 4), cluster)
    plan_tables(sized(num_pin_rows=rows), cluster)
    # One row more on each GPU.
    assert f"tables.num_pin_rows={rows}" in refusal(sized(num_pin_rows=rows + 16), cluster)


def test_a_part_of_a_host_may_do() -> None:
    told = refusal(sized(num_user_rows=1000, num_pin_rows=1_000_000_000), Cluster(num_gpus=1, hbm_gib=80.0))
    # 1e9 rows of 260 bytes, over four GPUs 60.5 GiB, and 0.8 of lookups: 3 would want 81.8.
    assert "--gpus 4," in told


def test_a_proposed_width_suits_the_attention_heads() -> None:
    recipe = replace(FEED, model=replace(FEED.model, num_attention_heads=32))
    told = refusal(recipe, Cluster(num_gpus=16, hbm_gib=80.0))
    assert "--set tables.dim=48," in told  # twice it is 96; 60 would fit, but 120 has no 32 heads


def test_nothing_may_do() -> None:
    # Impressions of all rows, on every GPU, are 33.5 GiB.
    even = replace(sized(num_user_rows=2_250_000_000, num_pin_rows=2_250_000_000), thaw=ThawConfig(arm="min_count"))
    told = refusal(even, Cluster(num_gpus=8, hbm_gib=16.0))
    assert told.endswith("would do: neither 2048 GPUs nor one smaller table")


def test_row_numbers_are_32_bits() -> None:
    rows = 2**31 * 8
    fits = sized(num_user_rows=8, num_pin_rows=rows - 8, dim=4)
    roomy = Cluster(num_gpus=8, hbm_gib=400.0)
    assert sum(table.rows_per_gpu for table in plan_tables(fits, roomy).tables) == 2**31
    told = refusal(sized(num_user_rows=8, num_pin_rows=rows, dim=4), roomy)
    assert "2,147,483,649 rows a GPU, 1 more than 32-bit row numbers reach" in told
    assert "--gpus 16" in told


def test_a_width_that_fbgemm_does_not_take() -> None:
    assert "tables.dim 6 is no multiple of 4" in refusal(sized(dim=6), FOUR)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"num_gpus": 0}, "0 GPUs"),
        ({"num_gpus": -8}, "-8 GPUs"),
        ({"num_gpus": 10**9}, "1 to 2048"),
        ({"gpus_per_host": 0}, "0 GPUs a host"),
        ({"num_gpus": 12}, "12 GPUs do not fill hosts of 8"),
        ({"hbm_gib": -1.0}, "-1.0 GiB"),
        ({"hbm_gib": math.nan}, "nan GiB"),
        ({"intra_gbps": 0.0}, "0.0 Gbit/s within a host"),
        ({"inter_gbps": math.inf}, "inf Gbit/s between hosts"),
    ],
)
def test_a_cluster_that_cannot_be(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        replace(FOUR, **wrong)
