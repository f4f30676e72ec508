"""Probabilities of every head, for rows or for whole days.

Shape suffixes: R rows, H label heads.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.batches.reader import SlateReader
from trainer.embeddings.lookup import Lookup, ids_of, look_up
from trainer.model.ranker import Ranker
from trainer.recipe import TablesConfig


def score(
    ranker: Ranker, lookup: Lookup, reader: SlateReader, *, tables: TablesConfig, device: torch.device
) -> NDArray[np.float32]:
    """Scores what a reader holds for this rank, in its order; dropout is off.

    Returns:
        Probabilities (R, H) float32 of the rows that ``reader.rows_of_rank()`` names.
    """
    was_training = ranker.training
    ranker.eval()
    scores = []
    with torch.no_grad():
        for cpu_batch in reader.in_order():
            batch = cpu_batch.to(device)
            rows = look_up(lookup, ids_of(batch, tables), adapting=False)
            scores.append(ranker(batch, rows).logits_BH.sigmoid().cpu())
    ranker.train(was_training)
    return torch.cat(scores).numpy()
