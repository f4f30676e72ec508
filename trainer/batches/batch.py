"""What one step reads.

Shape suffixes: B rows of the batch, N ids of all histories together, H label heads, U and P user and pin features,
M distinct pins, S side of an image in pixels, C its 3 colours, T tokens of the longest text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, kw_only=True)
class Media:
    """Images and texts of a batch's distinct candidates.

    Attributes:
        keys_M: int64, stay on the host: the same key, anywhere, is the same image and text.
        images_MSSC: uint8, RGB.
        tokens_MT: int64, padded behind.
        num_tokens_M: int64, tokens of each text.
        pins_B: int64, which of the M each row of the batch shows.
    """

    keys_M: NDArray[np.int64]
    images_MSSC: Tensor
    tokens_MT: Tensor
    num_tokens_M: Tensor
    pins_B: Tensor

    def select(self, pins: list[int]) -> "Media":
        """Some of the distinct pins, in that order; ``pins_B`` then counts them."""
        return Media(
            keys_M=self.keys_M[pins],
            images_MSSC=self.images_MSSC[pins],
            tokens_MT=self.tokens_MT[pins],
            num_tokens_M=self.num_tokens_M[pins],
            pins_B=torch.arange(len(pins), device=self.pins_B.device),
        )

    def to(self, device: torch.device) -> "Media":
        """The same media on another device, as `Batch.to`."""
        return Media(**_moved(self, device))


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
        weights_B: float32, how many rows of the log each row stands for; 1 where negatives were not sampled.
        slates_B: int64, the same number for the rows of one slate.
        log_q_B: float32, log of each candidate's share of the rows trained on; corrects in-batch negatives.
        num_step_rows: Rows of this step on all ranks together.
        media: Of the candidates, where the recipe has a vision-language encoder.
    """

    user_ids_B: Tensor
    pin_ids_B: Tensor
    history_ids_N: Tensor
    history_actions_N: Tensor
    history_lengths_B: Tensor
    user_features_BU: Tensor
    pin_features_BP: Tensor
    labels_BH: Tensor
    weights_B: Tensor
    slates_B: Tensor
    log_q_B: Tensor
    num_step_rows: int
    media: Media | None = None

    @property
    def num_lookups(self) -> int:
        """Rows of tables that it reads: a user's, a candidate's and a history's for each impression."""
        return 2 * len(self.user_ids_B) + len(self.history_ids_N)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device; copies to a GPU go through pinned memory and do not block."""
        return Batch(**_moved(self, device))


def joined(parts: Sequence[Batch]) -> Batch:
    """Parts of one step on one rank, in order, as one batch."""
    if len(parts) == 1:
        return parts[0]
    num_slates = [int(part.slates_B[-1]) + 1 if len(part.slates_B) else 0 for part in parts]
    before = np.cumsum([0, *num_slates[:-1]]).tolist()
    names = [name for name, value in vars(parts[0]).items() if isinstance(value, Tensor) and name != "slates_B"]
    rows: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    return Batch(
        **rows,
        slates_B=torch.cat([part.slates_B + first for part, first in zip(parts, before, strict=True)]),
        num_step_rows=sum(part.num_step_rows for part in parts),
        media=_joined_media([part.media for part in parts if part.media is not None]),
    )


def cut(batch: Batch, num_slates: Sequence[int], num_step_rows: Sequence[int]) -> list[Batch]:
    """A batch without media, cut into steps; they share its memory.

    Args:
        batch: Slates of all steps; they are numbered anew in each.
        num_slates: Of each step.
        num_step_rows: Of each step.
    """
    first_slates = np.cumsum([0, *num_slates])
    edges = np.searchsorted(batch.slates_B.numpy(), first_slates)
    history_edges = np.append(0, np.cumsum(batch.history_lengths_B.numpy()))[edges]
    sizes = {"B": np.diff(edges).tolist(), "N": np.diff(history_edges).tolist()}
    tensors = {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}
    parts = {name: torch.split(value, sizes["N" if name.endswith("_N") else "B"]) for name, value in tensors.items()}
    steps = [dict(zip(parts, of_step, strict=True)) for of_step in zip(*parts.values(), strict=True)]
    return [
        Batch(**{**step, "slates_B": step["slates_B"] - first}, num_step_rows=num)
        for step, first, num in zip(steps, first_slates[:-1].tolist(), num_step_rows, strict=True)
    ]


def _joined_media(parts: Sequence[Media]) -> Media | None:
    """The distinct pins of all parts."""
    if not parts:
        return None
    keys = np.concatenate([part.keys_M for part in parts])
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    longest = max(part.tokens_MT.shape[1] for part in parts)
    tokens_MT = torch.cat([pad(part.tokens_MT, (0, longest - part.tokens_MT.shape[1])) for part in parts])
    before = np.cumsum([0, *(len(part.keys_M) for part in parts[:-1])]).tolist()
    pins_B = torch.cat([part.pins_B + number for part, number in zip(parts, before, strict=True)])
    return Media(
        keys_M=keys[first],
        images_MSSC=torch.cat([part.images_MSSC for part in parts])[first],
        tokens_MT=tokens_MT[first],
        num_tokens_M=torch.cat([part.num_tokens_M for part in parts])[first],
        pins_B=torch.from_numpy(which)[pins_B],
    )


def _moved(holder: Batch | Media, device: torch.device) -> dict[str, Any]:
    moved = dict(vars(holder))
    for name, value in moved.items():
        if isinstance(value, Tensor):
            pinned = value.pin_memory() if device.type == "cuda" and value.device.type == "cpu" else value
            moved[name] = pinned.to(device, non_blocking=True)
        elif isinstance(value, Media):
            moved[name] = value.to(device)
    return moved
