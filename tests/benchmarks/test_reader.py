"""The peers of the reader's benchmark make the tensors that ours makes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.reader_peers import Tensors, data_loader, hugging_face
from tests.trainer import tiny
from tests.trainer.batches.days import Shape, rows_of, write_days
from trainer.batches.columns import Columns

SHAPE = Shape(sizes=(3, 5, 2, 7, 4, 6), day_cuts=(2, 4), group_rows=4)
PEERS = {
    "data_loader": partial(data_loader, num_workers=0),
    "data_loader_2_workers": partial(data_loader, num_workers=2),
    "hugging_face": partial(hugging_face, by_row=False),
    "hugging_face_by_row": partial(hugging_face, by_row=True),
}


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_reads_every_row_once_into_the_same_tensors(name: str, tmp_path: Path) -> None:
    settings = {"training.shuffle_rows": "10", "training.batch_rows": "4", "model.history_length": "9"}
    recipe = tiny.recipe(settings)
    table = rows_of(SHAPE)
    columns = Columns.of_table(table, recipe)
    files = [file for day in write_days(tmp_path, table, SHAPE) for file in day.files]
    seen = []
    batches: Iterator[Tensors] = PEERS[name](files, recipe)
    for batch in batches:
        rows = batch["pin_features_BP"][:, 0].long().numpy()
        seen += rows.tolist()
        wanted = columns.gather(rows, slates=rows, log_q=columns.weights, num_step_rows=len(rows))
        for tensor, values in batch.items():
            assert torch.equal(values, getattr(wanted, tensor)), tensor
            assert values.dtype == getattr(wanted, tensor).dtype, tensor
    assert sorted(seen) == list(range(SHAPE.num_rows))
    assert seen != sorted(seen)
