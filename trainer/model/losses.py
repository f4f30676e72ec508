"""The losses.

Each is a sum over this rank's rows divided by the step's rows *per rank*, so that averaging gradients over ranks gives
the mean over the whole step, however unevenly slates fall on ranks.

Where a day's negatives were sampled, each stands for several rows of the log, its weight: the heads' losses, and a
saved pin's mean over its slate's unsaved pins, count it so often. Divided by the rows of the step, sampled or not, the
losses stand to each other as they do over all rows.
Shape suffixes: B rows, H label heads, D width of a vector.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.batches.batch import Batch
from trainer.embeddings.lookup import CANDIDATE, HISTORY, USER, Rows
from trainer.model.ranker import Outputs, Ranker
from trainer.model.two_tower import TwoTower
from trainer.recipe import LossesConfig

Losses = dict[str, Tensor]


class RankingObjective(nn.Module):
    """All losses of the ranker, as one module, so that data-parallel wrapping sees the whole backward pass."""

    def __init__(self, ranker: Ranker, config: LossesConfig, *, num_ranks: int) -> None:
        super().__init__()
        self.ranker = ranker
        self._config, self._num_ranks = config, num_ranks

    def forward(self, batch: Batch, rows: Rows) -> Losses:
        """Weighted scalars ``head``, ``pairwise`` and ``contrastive``; training minimises their sum."""
        config, num_rows = self._config, batch.num_step_rows / self._num_ranks
        outputs: Outputs = self.ranker(batch, rows)
        save_B = batch.labels_BH[:, 0]
        weights_H = torch.tensor(config.head_weights, device=save_B.device)
        head_BH = weights_H * F.binary_cross_entropy_with_logits(outputs.logits_BH, batch.labels_BH, reduction="none")
        head_BH = head_BH * batch.weights_B.unsqueeze(1)
        pairs = pairwise(outputs.logits_BH[:, 0], save_B, batch.slates_B, batch.weights_B)
        matches = contrastive(outputs.user_BD, outputs.pin_BD, batch, config.temperature)
        return {
            "head": head_BH.sum() / num_rows,
            "pairwise": config.pairwise_weight * pairs / num_rows,
            "contrastive": config.contrastive_weight * matches / num_rows,
        }


class PretrainingObjective(nn.Module):
    """The contrastive loss alone: what makes a backbone."""

    def __init__(self, two_tower: TwoTower, config: LossesConfig, *, num_ranks: int) -> None:
        super().__init__()
        self.two_tower = two_tower
        self._temperature, self._num_ranks = config.temperature, num_ranks

    def forward(self, batch: Batch, rows: Rows) -> Losses:
        """The scalar ``contrastive``."""
        user_BD, pin_BD = self.two_tower(batch, rows[USER], rows[CANDIDATE], rows[HISTORY])
        loss = contrastive(user_BD, pin_BD, batch, self._temperature)
        return {"contrastive": loss / (batch.num_step_rows / self._num_ranks)}


def pairwise(logits_B: Tensor, save_B: Tensor, slates_B: Tensor, weights_B: Tensor) -> Tensor:
    """Logistic loss of each saved pin against the unsaved of its slate (RankNet: Burges et al., ICML 2005).

    Returns:
        Scalar: for each saved pin the mean over its slate's unsaved pins, by their weights, summed.
    """
    is_pair_BB = (slates_B.unsqueeze(1) == slates_B) & (save_B.unsqueeze(1) > save_B)
    weight_BB = is_pair_BB * weights_B
    loss_BB = F.softplus(logits_B - logits_B.unsqueeze(1)) * weight_BB
    return (loss_BB.sum(dim=1) / weight_BB.sum(dim=1).clamp(min=1)).sum()


def contrastive(user_BD: Tensor, pin_BD: Tensor, batch: Batch, temperature: float) -> Tensor:
    """Softmax of each saved pin against the batch's other pins, corrected for their frequency (Yi et al., RecSys 2019).

    Pins that the same user saved in the batch, and other rows of the same pin, are no negatives.

    Returns:
        Scalar: the sum over saved rows.
    """
    save_B = batch.labels_BH[:, 0] > 0
    anchors = save_B.nonzero().squeeze(1)
    logits_AB = user_BD[anchors] @ pin_BD.T / temperature - batch.log_q_B
    same_pin_AB = batch.pin_ids_B[anchors].unsqueeze(1) == batch.pin_ids_B
    same_user_AB = batch.user_ids_B[anchors].unsqueeze(1) == batch.user_ids_B
    own_AB = anchors.unsqueeze(1) == torch.arange(len(save_B), device=save_B.device)
    is_excluded_AB = (same_pin_AB | (same_user_AB & save_B)) & ~own_AB
    logits_AB = logits_AB.masked_fill(is_excluded_AB, float("-inf"))
    return F.cross_entropy(logits_AB, anchors, reduction="sum")
