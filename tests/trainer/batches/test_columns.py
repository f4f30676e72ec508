from datetime import date, timedelta
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.trainer import tiny
from tests.trainer.windows.partitions import write_partition
from trainer.batches.columns import Columns
from trainer.recipe import Recipe


def recipe_of(history_length: int) -> Recipe:
    return tiny.recipe({"model.history_length": str(history_length)})


@pytest.mark.parametrize("history_length", [1, 4, 100])
def test_a_batch_holds_its_rows_in_the_order_asked_for(history_length: int) -> None:
    table = tiny.table()
    columns = Columns.of_table(table, recipe_of(history_length))
    asked = np.random.default_rng(1).permutation(table.num_rows)[:25]
    asked = np.append(asked, asked[:2])
    log_q = np.arange(table.num_rows, dtype=np.float32)
    batch = columns.gather(asked, slates=np.arange(len(asked)), log_q=log_q, num_step_rows=99)

    wanted = [table.slice(row, 1).to_pylist()[0] for row in asked]
    assert batch.user_ids_B.tolist() == [row["user_id"] for row in wanted]
    assert batch.pin_ids_B.tolist() == [row["pin_id"] for row in wanted]
    assert batch.user_features_BU.tolist() == [row["user_features"] for row in wanted]
    assert batch.pin_features_BP.tolist() == [row["pin_features"] for row in wanted]
    assert batch.labels_BH.tolist() == [[float(row["save"]), float(row["click"])] for row in wanted]
    assert batch.log_q_B.tolist() == asked.tolist()
    assert batch.num_step_rows == 99
    # Most recent first, so a history that is cut keeps its first pins.
    cut = [row["history"][:history_length] for row in wanted]
    assert batch.history_lengths_B.tolist() == [len(pins) for pins in cut]
    assert batch.history_ids_N.tolist() == list(chain.from_iterable(cut))
    actions = [row["history_actions"][:history_length] for row in wanted]
    assert batch.history_actions_N.tolist() == list(chain.from_iterable(actions))


def test_a_batch_has_the_types_that_the_network_reads() -> None:
    columns = tiny.columns()
    batch = columns.gather(
        np.arange(3), slates=np.arange(3), log_q=np.zeros(columns.num_rows, np.float32), num_step_rows=3
    )
    for name in ("user_ids_B", "pin_ids_B", "history_ids_N", "history_actions_N", "history_lengths_B", "slates_B"):
        assert getattr(batch, name).dtype == torch.int64, name
    for name in ("user_features_BU", "pin_features_BP", "labels_BH", "log_q_B"):
        assert getattr(batch, name).dtype == torch.float32, name


def test_no_rows_are_a_batch_too() -> None:
    columns = tiny.columns()
    none = np.empty(0, np.int64)
    batch = columns.gather(none, slates=none, log_q=np.zeros(columns.num_rows, np.float32), num_step_rows=3)
    assert batch.user_features_BU.shape == (0, 2)
    assert batch.labels_BH.shape == (0, 2)
    assert len(batch.history_ids_N) == 0


def test_a_view_of_a_table_reads_like_a_copy() -> None:
    """Arrow's slices share buffers and carry offsets, which flat reads are apt to forget."""
    table = tiny.table()
    view = table.slice(7, 20)
    copied = pa.Table.from_pylist(view.to_pylist(), schema=view.schema)
    seen, wanted = (vars(Columns.of_table(each, recipe_of(3))) for each in (view, copied))
    for name, values in wanted.items():
        np.testing.assert_array_equal(seen[name], values, err_msg=name)


def test_days_are_read_one_after_the_other(tmp_path: Path) -> None:
    table = tiny.table()
    partitions = []
    for number, (begin, end) in enumerate([(0, 11), (11, 30), (30, table.num_rows)]):
        day = date(2024, 1, 1) + timedelta(days=number)
        partitions.append(write_partition(tmp_path / str(number), day, table.slice(begin, end - begin)))
    read, wanted = vars(Columns.read(partitions, recipe_of(3))), vars(Columns.of_table(table, recipe_of(3)))
    for name, values in wanted.items():
        np.testing.assert_array_equal(read[name], values, err_msg=name)


def test_a_table_to_score_needs_no_labels() -> None:
    columns = Columns.of_table(tiny.table().drop_columns(["save", "click"]), recipe_of(3))
    assert columns.labels.shape == (columns.num_rows, 2)
    assert not columns.labels.any()
