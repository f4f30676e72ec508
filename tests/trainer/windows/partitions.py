"""Prepared days made by hand, and the rows of prepared days."""

from datetime import date
from pathlib import Path

import pyarrow as pa

from trainer.storage.filesystem import open_parquet, stat
from trainer.storage.publishing import write_parquet
from trainer.storage.uris import join
from trainer.windows.manifest import Partition, load_partition, publish_partition

NAME = "part-00000-0123abcd.parquet"


def write_partition(folder: Path | str, day: date, table: pa.Table, *, num_slates: int = 1) -> Partition:
    """Publishes `table` as the prepared day in `folder`."""
    write_parquet(join(folder, NAME), table)
    entry = {"name": NAME, "num_rows": table.num_rows, "num_bytes": stat(join(folder, NAME)).num_bytes}
    facts = {"day": day.isoformat(), "num_rows": table.num_rows, "num_slates": num_slates, "files": [entry]}
    assert publish_partition(str(folder), facts)
    return load_partition(str(folder))


def read_rows(partition: Partition | str) -> pa.Table:
    """All rows of a prepared day, in order."""
    whole = load_partition(partition) if isinstance(partition, str) else partition
    tables = []
    for uri in whole.files:
        with open_parquet(uri) as file:
            tables.append(file.read())
    return pa.concat_tables(tables)
