from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.windows.logs import columns_of, table_of
from trainer.windows.preparing.gather import gather

EXTRAS: dict[str, list[Any]] = {
    "propensity": [0.5] * 24,
    "image": [bytes([row] * row) for row in range(24)],
    "text": ["é" * row for row in range(24)],
}
TABLE = table_of(columns_of() | EXTRAS)


@settings(deadline=None)
@given(st.lists(st.integers(0, 23)), st.integers(1, 30))
def test_rows_are_gathered_as_arrow_would(rows: list[int], chunk_rows: int) -> None:
    chunks = [TABLE.slice(start, chunk_rows) for start in range(0, 24, chunk_rows)]
    found = gather(pa.concat_tables(chunks), np.array(rows, np.int64))
    assert found.equals(TABLE.take(pa.array(rows, pa.int64())))
    found.validate(full=True)


def test_lists_with_nulls_are_gathered_too() -> None:
    table = pa.table({"history": pa.array([[1, None], None, [], [2, 3]], pa.list_(pa.int64()))})
    rows = np.array([3, 1, 0])
    assert gather(table, rows).equals(table.take(pa.array(rows)))


def test_no_rows_of_nothing() -> None:
    assert gather(TABLE.slice(0, 0), np.empty(0, np.int64)).equals(TABLE.slice(0, 0))
