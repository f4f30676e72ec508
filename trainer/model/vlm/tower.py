"""The encoder as the ranker uses it: trained or frozen, and projected to the width of a table row.

Shape suffixes: B rows of the batch, M distinct pins, E width of the encoder's output, D width of a table row.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.batches.batch import Media
from trainer.model.vlm.builtin import BuiltinEncoder
from trainer.model.vlm.cache import EmbeddingCache
from trainer.recipe import VlmConfig

if TYPE_CHECKING:
    from trainer.model.vlm.huggingface import HuggingFaceEncoder

ENCODER = "vlm.encoder."
"""Prefix, in a ranker, of the encoder's own parameters; ``vlm.`` alone holds its projection too."""

_MIB = 2**20


class VlmTower(nn.Module):
    """A pin's image and text to a vector beside its table row; every distinct pin of a batch is encoded once.

    While frozen, the encoder runs without autograd and its embeddings are cached; the projection trains on.
    """

    def __init__(self, config: VlmConfig, *, dim: int, is_pretrained: bool) -> None:
        super().__init__()
        self.encoder = _encoder(config, is_pretrained=is_pretrained)
        self.project = nn.Linear(self.encoder.output_size, dim)
        # At first a pin is what its row says, and a backbone's ranking is kept.
        nn.init.zeros_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self._cache = EmbeddingCache(width=self.encoder.output_size, max_bytes=config.cache_mib * _MIB)
        self._is_frozen = False
        self._weights_cached: tuple[tuple[int, int], ...] = ()

    @property
    def cache_bytes(self) -> int:
        """What the cached embeddings take now."""
        return self._cache.num_bytes

    def freeze(self, frozen: bool) -> None:
        """Freezes the encoder or lets it train."""
        self._is_frozen = frozen
        self._cache.clear()
        self.train(self.training)

    def train(self, mode: bool = True) -> "VlmTower":
        """See `torch.nn.Module.train`; a frozen encoder stays as in evaluation, or its embeddings would vary."""
        super().train(mode)
        self.encoder.train(mode and not self._is_frozen)
        return self

    def forward(self, media: Media) -> Tensor:
        """Returns content vectors (B, D) float32."""
        encoded_ME = self._frozen(media) if self._is_frozen else self.encoder(media)
        content_BD: Tensor = self.project(encoded_ME)[media.pins_B]
        return content_BD

    def _frozen(self, media: Media) -> Tensor:
        # In-place changes count a tensor's version up; moving a module changes where it lies.
        weights = tuple((tensor.data_ptr(), tensor._version) for tensor in self.encoder.parameters())
        if weights != self._weights_cached:
            self._cache.clear()
            self._weights_cached = weights
        with torch.no_grad():
            return self._cache.fetch(media.keys_M.tolist(), lambda places: self._encode(media.select(places)))

    def _encode(self, media: Media) -> Tensor:
        encoded_ME: Tensor = self.encoder(media)
        return encoded_ME


def _encoder(config: VlmConfig, *, is_pretrained: bool) -> "BuiltinEncoder | HuggingFaceEncoder":
    if config.encoder == "builtin":
        return BuiltinEncoder(config)
    assert config.path is not None, "a recipe with a Hugging Face encoder names its folder"
    # Importing transformers takes seconds, which other recipes do not owe.
    from trainer.model.vlm.folder import encoder_folder
    from trainer.model.vlm.huggingface import HuggingFaceEncoder

    return HuggingFaceEncoder(encoder_folder(config.path), is_pretrained=is_pretrained)
