"""The self-influence canary: do the rows hold the labels of the examples that read them?

Some slates of the window are watched (*seen*), as many are kept from training (*unseen*); both come from one draw, so
they differ in nothing but that the rows met the labels of the first. After each pass the network scores both twice:
with the rows as they are, and with the rows from before their own updates. What the new rows take off the loss of seen
examples, beyond what they take off unseen ones, is their own labels' influence on themselves: self-influence in the
sense of TracIn (Pruthi et al., NeurIPS 2020), summed over a pass and measured, not approximated. While tables are
frozen it is zero. A pass that begins with much of it trains the network to read labels off the rows.

Shape suffixes: B rows of a batch.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.batches.batch import Batch
from trainer.batches.reader import batches_of
from trainer.batches.slates import Ints
from trainer.batches.source import Source
from trainer.embeddings.lookup import Lookup, Rows, ids_of, look_up
from trainer.model.ranker import Ranker
from trainer.recipe import TablesConfig

_MAX_SHARE = 0.05  # of the window's slates, for each of the two groups


@dataclass(frozen=True, kw_only=True)
class Slates:
    """Numbers of slates, in the order of the rows.

    Attributes:
        seen: Trained on, and watched.
        unseen: Kept from training.
        trained: All that is trained on.
    """

    seen: Ints
    unseen: Ints
    trained: Ints


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the canary says after a pass; mean cross-entropies of ``save``, in nats.

    Attributes:
        self_influence: What the rows' own labels take off the loss, as a share of the loss on unseen examples.
        memory_gap: Loss on unseen examples less that on seen ones, as a share of the first; the network's memory is in
            it too.
        seen_loss: Loss on seen examples.
        unseen_loss: Loss on unseen examples.
    """

    self_influence: float
    memory_gap: float
    seen_loss: float
    unseen_loss: float

    def to_dict(self) -> dict[str, float]:
        """The reading as plain data."""
        return asdict(self)


def choose_slates(source: Source, *, num_rows: int, seed: int) -> Slates:
    """Draws the slates to watch and as many to keep from training.

    Args:
        source: The window.
        num_rows: Impressions to watch; at most a twentieth of the window's slates are.
        seed: Of the draw.
    """
    num_slates = sum(map(len, source.slate_sizes))
    wanted = round(num_rows * num_slates / max(1, source.num_rows))
    number = max(1, min(wanted, int(num_slates * _MAX_SHARE)))
    order = np.random.default_rng([seed, 0xCA9A]).permutation(num_slates)
    unseen, seen = order[:number], order[number : 2 * number]
    return Slates(seen=np.sort(seen), unseen=np.sort(unseen), trained=np.sort(order[number:]))


class Canary:
    """Reads the self-influence of a run's rows.

    Every rank scores all of the watched slates, so all ranks read the same; lookups are collective.

    Args:
        ranker: The network, which trains on meanwhile.
        lookup: The tables, as they were before the run.
        source: The window.
        slates: What is watched.
        tables: How ids are hashed.
        device: Of the network.
    """

    def __init__(
        self,
        ranker: Ranker,
        lookup: Lookup,
        source: Source,
        slates: Slates,
        *,
        tables: TablesConfig,
        device: torch.device,
    ) -> None:
        self._ranker, self._lookup, self._tables = ranker, lookup, tables
        seen, unseen = batches_of(source, slates.seen, slates.unseen)
        self._batches = {"seen": seen.to(device), "unseen": unseen.to(device)}
        self._rows_before = {name: self._rows(batch) for name, batch in self._batches.items()}

    def read(self) -> Reading:
        """Scores the watched slates; dropout is off."""
        was_training = self._ranker.training
        self._ranker.eval()
        with torch.no_grad():
            before = {name: self._loss(batch, self._rows_before[name]) for name, batch in self._batches.items()}
            now = {name: self._loss(batch, self._rows(batch)) for name, batch in self._batches.items()}
        self._ranker.train(was_training)
        gains = {name: before[name] - now[name] for name in now}
        return Reading(
            self_influence=(gains["seen"] - gains["unseen"]) / now["unseen"],
            memory_gap=(now["unseen"] - now["seen"]) / now["unseen"],
            seen_loss=now["seen"],
            unseen_loss=now["unseen"],
        )

    def _rows(self, batch: Batch) -> Rows:
        rows: Mapping[str, Tensor] = look_up(self._lookup, ids_of(batch, self._tables), adapting=False)
        return {site: values.clone() for site, values in rows.items()}

    def _loss(self, batch: Batch, rows: Rows) -> float:
        logits_B = self._ranker(batch, rows).logits_BH[:, 0]
        return float(F.binary_cross_entropy_with_logits(logits_B, batch.labels_BH[:, 0]))
