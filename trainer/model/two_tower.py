"""User and pin vectors that meet in a dot product: what the backbone pretrains and the contrastive loss keeps alive.

Shape suffixes: B rows, N ids of all histories together, D width of a table row.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.batches.batch import Batch


class TwoTower(nn.Module):
    """User row and mean history row -> user vector; candidate row -> pin vector; both of length one."""

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        self.user = nn.Sequential(nn.Linear(2 * dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.pin = nn.Linear(dim, dim)

    def forward(self, batch: Batch, user_BD: Tensor, candidate_BD: Tensor, history_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Returns user and pin vectors, (B, D) float32 each."""
        lengths_B = batch.history_lengths_B
        row_N = torch.repeat_interleave(torch.arange(len(lengths_B), device=lengths_B.device), lengths_B)
        sums_BD = torch.zeros_like(user_BD).index_add(0, row_N, history_ND)
        mean_BD = sums_BD / lengths_B.clamp(min=1).unsqueeze(1)
        user = user_BD + mean_BD + self.user(torch.cat([user_BD, mean_BD], dim=-1))
        return F.normalize(user, dim=-1), F.normalize(candidate_BD + self.pin(candidate_BD), dim=-1)
