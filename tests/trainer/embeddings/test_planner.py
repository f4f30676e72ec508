"""TorchRec's planner as it is asked: nothing is printed, and a plan that it refuses is told in one line."""

import logging
from dataclasses import replace

import pytest

from trainer.embeddings.planner import Cluster, Estimate, TablePlan, estimate
from trainer.errors import InputError

TABLES = (
    TablePlan(name="user", num_rows=5, dim=8, rows_per_gpu=1, bytes_per_gpu=36),
    TablePlan(name="pin", num_rows=80, dim=8, rows_per_gpu=10, bytes_per_gpu=360),
)
LOOKUPS = {"user": 1, "candidate": 1, "history": 2}


def asked(cluster: Cluster, tables: tuple[TablePlan, ...] = TABLES) -> Estimate:
    return estimate(cluster, tables, batch_rows_per_gpu=2, lookups_of_site=LOOKUPS, precision="fp32")


def test_nothing_is_printed_or_logged(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    before = logging.root.manager.disable
    with caplog.at_level(logging.DEBUG):
        asked(Cluster(num_gpus=8, hbm_gib=1.0, intra_gbps=1.0))
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert logging.root.manager.disable == before


def test_a_gpu_without_rows_of_a_table_is_planned() -> None:
    # 5 user rows over 8 ranks: three hold none. Rows and sums of 1 and 10 rows; an id and a row for 2 x 4 lookups.
    assert asked(Cluster(num_gpus=8, hbm_gib=1.0)).num_bytes == 11 * 36 + 8 * (8 + 32)


def test_what_the_planner_keeps_back_is_not_planned() -> None:
    needed = 11 * 36 + 8 * (8 + 32)
    exactly = Cluster(num_gpus=8, hbm_gib=(needed / 0.85 + 1) / 2**30)
    assert exactly.usable_bytes == needed
    asked(exactly)
    with pytest.raises(InputError, match="TorchRec's planner finds no plan: ") as refused:
        asked(replace(exactly, hbm_gib=(needed / 0.85 - 1) / 2**30))
    assert "\n" not in str(refused.value)


def test_a_plan_that_is_not_the_trainers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.embeddings.planner._SHARDING", "table_wise")
    with pytest.raises(AssertionError):
        asked(Cluster(num_gpus=8, hbm_gib=1.0))
