"""A step's batch in parts that the network runs one after another, its rows having been looked up at once.

Shape suffixes: B rows of the batch, N ids of all histories together.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from trainer.batches.batch import Batch, Media
from trainer.embeddings.lookup import CANDIDATE, HISTORY, USER, Rows


def micro_batches(batch: Batch, rows: Rows, number: int) -> Iterator[tuple[Batch, Rows]]:
    """Splits a batch at the edges of slates into parts of about the same number of rows.

    Losses are sums over the rows of a part divided by the rows of the whole step, so the parts' gradients add up to
    those of the whole, also in a last step that is smaller than the others. Gradients of a part's rows add up on
    ``rows``.

    Args:
        batch: The step's.
        rows: Its rows, leaves.
        number: Parts; fewer when it holds fewer slates.
    """
    if number == 1:
        yield batch, rows
        return
    gradients = {}
    for site, leaf in rows.items():
        if leaf.requires_grad:
            gradients[site] = leaf.grad = torch.zeros_like(leaf)
    ends_N = batch.history_lengths_B.cumsum(0).tolist()
    for begin, end in pairwise(_edges(batch, number)):
        ids = slice(ends_N[begin - 1] if begin else 0, ends_N[end - 1] if end else 0)
        places = {USER: slice(begin, end), CANDIDATE: slice(begin, end), HISTORY: ids}
        parts = {}
        for site, leaf in rows.items():
            part = parts[site] = leaf.detach()[places[site]].requires_grad_(leaf.requires_grad)
            if site in gradients:
                part.grad = gradients[site][places[site]]
        yield _part(batch, slice(begin, end), ids), parts


def _edges(batch: Batch, number: int) -> list[int]:
    """Where parts begin, and the end: the first slate that begins at or after each share of the rows."""
    num_rows = len(batch.slates_B)
    starts = (batch.slates_B.diff(prepend=batch.slates_B[:1] - 1).nonzero().squeeze(1)).tolist()
    wanted = [num_rows * part / number for part in range(1, number)]
    inner = {min((start for start in starts if start >= share), default=num_rows) for share in wanted}
    return [0, *sorted(inner - {0, num_rows}), num_rows]


def _part(batch: Batch, rows: slice, ids: slice) -> Batch:
    cut: dict[str, Any] = {
        name: value[ids if name.endswith("_N") else rows]
        for name, value in vars(batch).items()
        if isinstance(value, Tensor)
    }
    media = None if batch.media is None else _media(batch.media, rows)
    return replace(batch, media=media, **cut)


def _media(media: Media, rows: slice) -> Media:
    pins, places_B = media.pins_B[rows].unique(return_inverse=True)  # type: ignore[no-untyped-call]
    return replace(media.select(pins.tolist()), pins_B=places_B)
