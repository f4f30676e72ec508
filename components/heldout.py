"""The held-out rows that models are judged on."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from trainer.windows.manifest import Partition


def read_rows(partition: Partition, columns: Sequence[str]) -> pd.DataFrame:
    """A prepared day's impressions, with those of the columns that the day has, in the order of its files and rows."""
    tables = []
    for path in sorted(Path(partition.path).glob("*.parquet")):
        there = pq.read_schema(path).names
        tables.append(pq.read_table(path, columns=[name for name in columns if name in there]))
    return pa.concat_tables(tables).to_pandas()
