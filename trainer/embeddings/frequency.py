"""How often a window shows each row.

Shape suffixes: R rows of a table.
"""

import torch
from torch import Tensor

from trainer.batches.source import Source
from trainer.embeddings.hashing import hash_rows
from trainer.embeddings.lookup import PIN_TABLE, USER_TABLE, num_rows_of
from trainer.recipe import TablesConfig


def count_impressions(source: Source, tables: TablesConfig) -> dict[str, Tensor]:
    """Impressions of each row: of the user's, and of the candidate's in the pin table.

    Reads within a history do not count: no label comes along with them.

    Returns:
        int64 (R,) by table, on CPU.
    """
    columns = {USER_TABLE: "user_id", PIN_TABLE: "pin_id"}
    counts = {}
    for table, num_rows in num_rows_of(tables).items():
        counts[table] = torch.zeros(num_rows, dtype=torch.int64)
        for ids in source.parts(columns[table]):
            rows = hash_rows(torch.tensor(ids), num_rows=num_rows, seed=tables.hash_seed)
            counts[table] += torch.bincount(rows, minlength=num_rows)
    return counts
