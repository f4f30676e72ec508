"""How often a window shows each row.

Shape suffixes: R rows of a table.
"""

import torch
from torch import Tensor

from trainer.batches.columns import Columns
from trainer.embeddings.hashing import hash_rows
from trainer.embeddings.lookup import PIN_TABLE, USER_TABLE, num_rows_of
from trainer.recipe import TablesConfig


def count_impressions(columns: Columns, tables: TablesConfig) -> dict[str, Tensor]:
    """Impressions of each row: of the user's, and of the candidate's in the pin table.

    Reads within a history do not count: no label comes along with them.

    Returns:
        int64 (R,) by table, on CPU.
    """
    ids_of_table = {USER_TABLE: columns.user_id, PIN_TABLE: columns.pin_id}
    return {
        table: torch.bincount(
            hash_rows(torch.tensor(ids_of_table[table]), num_rows=num_rows, seed=tables.hash_seed),
            minlength=num_rows,
        )
        for table, num_rows in num_rows_of(tables).items()
    }
