"""What one step reads.

Shape suffixes: B rows of the batch, N ids of all histories together, H label heads, U and P user and pin features.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Whole slates, as tensors on one device.

    Attributes:
        user_ids_B: int64.
        pin_ids_B: int64, the candidates.
        history_ids_N: int64, the users' last engaged pins, most recent first, row after row.
        history_actions_N: int64, what the user did with each.
        history_lengths_B: int64, how many of the N belong to each row.
        user_features_BU: float32.
        pin_features_BP: float32.
        labels_BH: float32, 0 or 1, in the order of ``logs.labels``.
        slates_B: int64, the same number for the rows of one slate.
        log_q_B: float32, log of each candidate's share of the rows trained on; corrects in-batch negatives.
        num_step_rows: Rows of this step on all ranks together.
    """

    user_ids_B: Tensor
    pin_ids_B: Tensor
    history_ids_N: Tensor
    history_actions_N: Tensor
    history_lengths_B: Tensor
    user_features_BU: Tensor
    pin_features_BP: Tensor
    labels_BH: Tensor
    slates_B: Tensor
    log_q_B: Tensor
    num_step_rows: int

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device; copies from pinned memory do not block."""
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return Batch(**moved)
