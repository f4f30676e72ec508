"""The small encoder that is trained from scratch.

Shape suffixes: M pins, S side of an image in pixels, C its 3 colours, G patches along a side, Q side of a patch in
pixels, L patches and words of a pin together, T words of the longest title, W width of a token.
"""

import torch
from torch import Tensor, nn

from trainer.batches.batch import Media
from trainer.model.transformer import Block
from trainer.recipe import VlmConfig

_COLOURS = 3


class BuiltinEncoder(nn.Module):
    """Patches of the image (ViT: Dosovitskiy et al., ICLR 2021) and words of the title through one small transformer.

    The output is the mean of the tokens, patches and words each for itself, so that a short title counts as much.
    """

    def __init__(self, config: VlmConfig) -> None:
        super().__init__()
        width = config.width
        self._patch_pixels = config.patch_pixels
        num_patches = (config.image_pixels // config.patch_pixels) ** 2
        self.patch = nn.Linear(_COLOURS * config.patch_pixels**2, width)
        self.word = nn.Embedding(config.num_words, width, padding_idx=0)
        self.patch_position = nn.Parameter(0.02 * torch.randn(num_patches, width))
        self.word_position = nn.Parameter(0.02 * torch.randn(config.num_tokens, width))
        self.blocks = nn.ModuleList(Block(width, num_heads=1 + (width % 2 == 0)) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(2 * width)

    @property
    def output_size(self) -> int:
        """Width of the output."""
        return 2 * len(self.patch.bias)

    def forward(self, media: Media) -> Tensor:
        """Returns (M, `output_size`) float32."""
        patches = self.patch(_patches(media.images_MSSC, self._patch_pixels)) + self.patch_position
        num_words = media.tokens_MT.shape[1]
        words = self.word(media.tokens_MT) + self.word_position[:num_words]
        is_padding_MT = torch.arange(num_words, device=words.device) >= media.num_tokens_M.unsqueeze(1)
        is_hidden_ML = nn.functional.pad(is_padding_MT, (patches.shape[1], 0), value=False)
        tokens_MLW = torch.cat([patches, words], dim=1)
        for block in self.blocks:
            tokens_MLW = block(tokens_MLW, is_hidden_ML)
        patches, words = tokens_MLW[:, :-num_words], tokens_MLW[:, -num_words:]
        words = words.masked_fill(is_padding_MT.unsqueeze(-1), 0.0).sum(dim=1)
        words = words / media.num_tokens_M.clamp(min=1).unsqueeze(1)
        encoded: Tensor = self.norm(torch.cat([patches.mean(dim=1), words], dim=-1))
        return encoded


def _patches(images_MSSC: Tensor, pixels: int) -> Tensor:
    """Square patches side by side, colours from -1 to 1: (M, G * G, Q * Q * C)."""
    size, side = len(images_MSSC), images_MSSC.shape[1]
    grid = side // pixels
    images_MGQGQC = images_MSSC.view(size, grid, pixels, grid, pixels, _COLOURS)
    patches = images_MGQGQC.permute(0, 1, 3, 2, 4, 5).reshape(size, grid * grid, pixels * pixels * _COLOURS)
    return patches.float() / 127.5 - 1.0
