import pytest
import torch

from tests.trainer import tiny
from trainer.batches.reader import SlateReader
from trainer.embeddings.hashing import hash_rows
from trainer.embeddings.lookup import (
    CANDIDATE,
    HISTORY,
    PIN_TABLE,
    USER,
    USER_TABLE,
    PlainTables,
    ids_of,
    look_up,
    num_rows_of,
)


def test_call_sites_travel_together_as_hashed_rows() -> None:
    config = tiny.recipe().tables
    batch = next(SlateReader(tiny.columns(), batch_rows=16, seed=0).in_order())
    ids = ids_of(batch, config)
    assert list(ids) == [USER, CANDIDATE, HISTORY]
    asked = {USER: batch.user_ids_B, CANDIDATE: batch.pin_ids_B, HISTORY: batch.history_ids_N}
    num_rows = {USER: config.num_user_rows, CANDIDATE: config.num_pin_rows, HISTORY: config.num_pin_rows}
    for site, wanted in asked.items():
        assert torch.equal(ids[site], hash_rows(wanted, num_rows=num_rows[site], seed=config.hash_seed))


def test_one_pin_table_serves_candidates_and_histories() -> None:
    config = tiny.recipe().tables
    assert num_rows_of(config) == {USER_TABLE: 17, PIN_TABLE: 33}
    weights = {table: torch.randn(rows, config.dim) for table, rows in num_rows_of(config).items()}
    batch = next(SlateReader(tiny.columns(), batch_rows=16, seed=0).in_order())
    ids = ids_of(batch, config)
    rows = look_up(PlainTables(weights), ids, adapting=False)
    assert torch.equal(rows[HISTORY], weights[PIN_TABLE][ids[HISTORY]])
    assert torch.equal(rows[CANDIDATE], weights[PIN_TABLE][ids[CANDIDATE]])
    assert torch.equal(rows[USER], weights[USER_TABLE][ids[USER]])


def test_plain_tables_never_adapt() -> None:
    with pytest.raises(AssertionError, match="read only"):
        look_up(
            PlainTables({}),
            ids_of(next(SlateReader(tiny.columns(), batch_rows=4, seed=0).in_order()), tiny.recipe().tables),
            adapting=True,
        )
