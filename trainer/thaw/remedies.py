"""Published remedies for the harm of a second pass, as things done to single rows.

Each is an arm (`trainer.thaw.arms`) whose settings are the recipe's ``remedies``:

- ``meda``: rows start each pass anew (Liu et al., "Multi-Epoch Learning for Deep CTR Prediction Models", arXiv
  2305.19531; Fan et al., arXiv 2407.01607). Pretrained rows go back to the backbone's, not to random ones.
- ``frequency_lr``: rare rows learn more slowly (Pinterest Ads, "The Evolution of Embedding Table Optimization and
  Multi-Epoch Training", arXiv 2505.05605).
- ``adam_ar``: a row shrinks in proportion to the steps since its last update, min(1, share x interval), so rare rows
  get the smallest norm budget (Li and Lyu, "Adaptive Regularization for Large-Scale Sparse Feature Embedding Models",
  ICLR 2026, arXiv 2511.06374); here beside row-wise Adagrad, which the paper covers as AdagradAR.
- ``slow_tables``: a smaller step size for all rows; ``row_dropout``, ``row_decay``: the regularizers that Zhang et al.
  ("Towards Understanding the Overfitting Phenomenon of Deep CTR Models", CIKM 2022) tried.
- ``min_count``: ids seen too seldom do not adapt (the frequency filter of Zhang et al. and of arXiv 2505.05605); they
  keep the backbone's row, which is what an id outside the window has anyway.

Shape suffixes: T touched rows of a table, R all its rows, D their width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Rows of few impressions adapt later than the others, or never.

    Attributes:
        rare_below: Impressions in the window below which a row is rare.
        rare_from: Epochs after which rare rows adapt too; infinity for never.
    """

    rare_below: int
    rare_from: float

    def through(self, epoch: int) -> "Admission":
        """What of it shapes a run's first ``epoch`` passes."""
        return Admission(rare_below=self.rare_below, rare_from=min(self.rare_from, float(epoch)))


@dataclass(frozen=True, kw_only=True)
class FrequencyRate:
    """A row of count c takes (c / full_count) ** power of each step, at most all of it."""

    full_count: int
    power: float

    def apply(self, old_TD: Tensor, new_TD: Tensor, counts_T: Tensor, interval_T: Tensor) -> Tensor:
        """See `trainer.embeddings.sharded.RowUpdate`."""
        share_T = (counts_T.to(old_TD.dtype) / self.full_count).clamp(max=1.0) ** self.power
        return torch.lerp(old_TD, new_TD, share_T.unsqueeze(1))


@dataclass(frozen=True, kw_only=True)
class Shrinkage:
    """Decoupled weight decay at a row's updates: by a share of it, or by that share for each step since the last."""

    share: float
    by_step: bool

    def apply(self, old_TD: Tensor, new_TD: Tensor, counts_T: Tensor, interval_T: Tensor) -> Tensor:
        """See `trainer.embeddings.sharded.RowUpdate`."""
        if not self.by_step:
            return new_TD - self.share * old_TD
        share_T = (self.share * interval_T.to(old_TD.dtype)).clamp(max=1.0)
        return new_TD - share_T.unsqueeze(1) * old_TD
