"""The ranking network.

Shape suffixes: B rows, H label heads, D width of a table row, U and P user and pin features.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torchrec.modules.crossnet import CrossNet

from trainer.batches.batch import Batch
from trainer.embeddings.lookup import CANDIDATE, HISTORY, USER, Rows
from trainer.model.history import HistoryTransformer
from trainer.model.two_tower import TwoTower
from trainer.model.vlm.tower import VlmTower
from trainer.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What the losses read."""

    logits_BH: Tensor
    user_BD: Tensor
    pin_BD: Tensor


class Standardize(nn.Module):
    """Subtracts a mean and divides by a standard deviation that the backbone's span fixed; (B, F) to (B, F)."""

    mean_F: Tensor
    std_F: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.register_buffer("mean_F", torch.zeros(num_features))
        self.register_buffer("std_F", torch.ones(num_features))

    def forward(self, features_BF: Tensor) -> Tensor:
        """Returns features of about zero mean and unit variance."""
        return (features_BF - self.mean_F) / self.std_F

    def fit(self, parts: Iterable[Tensor]) -> None:
        """Takes mean and deviation from rows; a feature that does not vary is only centred.

        Args:
            parts: The rows (R, F), in parts that are added up as Chan, Golub and LeVeque do (The American Statistician,
                1983): the same as in one part but for rounding in float64.
        """
        num_rows, mean_F, std_F = 0, torch.zeros(()), torch.zeros(())
        for part_RF in parts:
            part_std_F, part_mean_F = torch.std_mean(part_RF.double(), dim=0, correction=0)
            if not num_rows:
                num_rows, mean_F, std_F = len(part_RF), part_mean_F, part_std_F
                continue
            total = num_rows + len(part_RF)
            share, gap_F = len(part_RF) / total, part_mean_F - mean_F
            std_F = ((1 - share) * std_F**2 + share * part_std_F**2 + share * (1 - share) * gap_F**2).sqrt()
            num_rows, mean_F = total, mean_F + share * gap_F
        self.mean_F = mean_F.float()
        self.std_F = torch.where(std_F > 0, std_F, 1.0).float()


class Ranker(nn.Module):
    """History transformer, full-rank feature crossing (DCNv2: Wang et al., WWW 2021) and one head a label."""

    def __init__(self, recipe: Recipe, *, is_encoder_pretrained: bool = True) -> None:
        """Initialises the network; the backbone's parts are loaded later.

        Args:
            recipe: Of the run.
            is_encoder_pretrained: Whether a Hugging Face encoder starts from its folder's weights; a saved ranker's own
                are loaded afterwards.

        Raises:
            InputError: The recipe's Hugging Face encoder cannot be read.
        """
        super().__init__()
        dim, logs, model = recipe.tables.dim, recipe.logs, recipe.model
        self.user_features = Standardize(logs.num_user_features)
        self.pin_features = Standardize(logs.num_pin_features)
        self.two_tower = TwoTower(dim=dim)
        self.history = HistoryTransformer(model, dim=dim)
        width = 2 * dim + self.history.output_size + logs.num_user_features + logs.num_pin_features + 1
        has_content = recipe.vlm.encoder != "none"
        if has_content:
            width += dim + 1
        self.crossing = CrossNet(width, model.num_cross_layers)
        layers: list[nn.Module] = []
        for size in model.hidden_sizes:
            layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(model.dropout)]
            width = size
        self.tower = nn.Sequential(*layers)
        self.heads = nn.Linear(width, len(logs.labels))
        self.vlm = VlmTower(recipe.vlm, dim=dim, is_pretrained=is_encoder_pretrained) if has_content else None

    def freeze_vlm(self, frozen: bool) -> None:
        """Freezes the vision-language encoder or lets it train; without one, nothing happens.

        A frozen encoder runs outside autograd and its embeddings are cached; its projection trains on.
        """
        if self.vlm is not None:
            self.vlm.freeze(frozen)

    def forward(self, batch: Batch, rows: Rows) -> Outputs:
        """Scores every row of a batch; ``rows`` come from a `trainer.embeddings.lookup.Lookup`."""
        user_BD, candidate_BD, history_ND = rows[USER], rows[CANDIDATE], rows[HISTORY]
        content_BD = None
        if self.vlm is not None:
            assert batch.media is not None, "a recipe with a vision-language encoder reads media"
            content_BD = self.vlm(batch.media)
            candidate_BD = candidate_BD + content_BD
        user_vector_BD, pin_vector_BD = self.two_tower(batch, user_BD, candidate_BD, history_ND)
        parts = [
            user_BD,
            candidate_BD,
            (user_vector_BD * pin_vector_BD).sum(dim=-1, keepdim=True),
            self.history(batch, history_ND, candidate_BD),
            self.user_features(batch.user_features_BU),
            self.pin_features(batch.pin_features_BP),
        ]
        if content_BD is not None:
            parts += [content_BD, (user_vector_BD * content_BD).sum(dim=-1, keepdim=True)]
        logits_BH = self.heads(self.tower(self.crossing(torch.cat(parts, dim=-1))))
        return Outputs(logits_BH=logits_BH, user_BD=user_vector_BD, pin_BD=pin_vector_BD)
