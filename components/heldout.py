"""The held-out rows that models are judged on."""

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa

from trainer.windows.manifest import Partition
from trainer.windows.prepared import open_prepared


def read_rows(partition: Partition, columns: Sequence[str]) -> pd.DataFrame:
    """A prepared day's impressions, with those of the columns that the day has, in the order of its files and rows.

    Raises:
        InputError: A file is gone or cannot be read.
        StorageError: Storage failed for too long.
    """
    tables = []
    for path in partition.files:
        with open_prepared(path) as file:
            tables.append(file.read(columns=[name for name in columns if name in file.schema_arrow.names]))
    return pa.concat_tables(tables).to_pandas()
