"""Any vision-language encoder of Hugging Face's transformers that embeds images and texts apart (CLIP, SigLIP).

It is read from a local folder alone: nothing is fetched, no code in the folder runs, no weight is unpickled.
Shape suffixes: M pins, S side of an image in pixels, C its 3 colours, T tokens of the longest text, E width of the
output.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging

from trainer.batches.batch import Media
from trainer.batches.text import Tokens
from trainer.errors import InputError
from trainer.model.vlm.folder import require_safetensors

_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt")
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")

logging.disable_progress_bar()  # type: ignore[no-untyped-call]


class HuggingFaceEncoder(nn.Module):
    """Image and text features of length one, side by side.

    Images come as they lie in memory (``vlm.image_pixels``) and are scaled to the encoder's own size here.

    Args:
        folder: Configuration, tokenizer, processor and weights.
        is_pretrained: Whether the folder's weights are read; otherwise they are to be loaded from a saved model.

    Raises:
        InputError: The folder holds no such encoder, or its weights are not in safetensors.
    """

    def __init__(self, folder: Path, *, is_pretrained: bool) -> None:
        super().__init__()
        if is_pretrained:
            require_safetensors(folder)
        mean, std = _normalisation(folder)
        self.model = _model(folder, is_pretrained=is_pretrained)
        self._pixels = int(self.model.config.vision_config.image_size)
        self.register_buffer("_mean_C", mean, persistent=False)
        self.register_buffer("_std_C", std, persistent=False)
        for name in ("logit_scale", "logit_bias"):  # of the loss that it was pretrained with
            if isinstance(parameter := getattr(self.model, name, None), nn.Parameter):
                parameter.requires_grad_(False)
        with torch.no_grad():
            self.output_size = self.forward(_probe()).shape[1]

    def forward(self, media: Media) -> Tensor:
        """Returns (M, E) float32."""
        if not len(media.images_MSSC):
            # A rank without a slate in a step still has a gradient, of zeros, to average.
            return self.forward(_probe().to(media.images_MSSC.device))[:0]
        images_MCSS = media.images_MSSC.permute(0, 3, 1, 2).float() / 255.0
        if images_MCSS.shape[-1] != self._pixels:
            images_MCSS = F.interpolate(images_MCSS, size=self._pixels, mode="bicubic", antialias=True).clamp(0.0, 1.0)
        mean_C, std_C = cast(Tensor, self._mean_C), cast(Tensor, self._std_C)
        images_MCSS = (images_MCSS - mean_C[:, None, None]) / std_C[:, None, None]
        tokens_MT = media.tokens_MT
        mask_MT = torch.arange(tokens_MT.shape[1], device=tokens_MT.device) < media.num_tokens_M.unsqueeze(1)
        image = self.model.get_image_features(pixel_values=images_MCSS).pooler_output
        text = self.model.get_text_features(input_ids=tokens_MT, attention_mask=mask_MT.long()).pooler_output
        return torch.cat([F.normalize(image, dim=-1), F.normalize(text, dim=-1)], dim=-1)


class PretrainedTokenizer:
    """The tokenizer of an encoder's folder; texts are cut to what the encoder reads.

    Raises:
        InputError: The folder holds no tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        # Without these, transformers makes an empty vocabulary up, in which all words are alike.
        if not any(file.name in _VOCABULARIES or file.suffix == ".model" for file in folder.iterdir()):
            raise _refusal(folder, "tokenizer", FileNotFoundError(f"no {_VOCABULARIES[0]}"))
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(folder, **_LOCAL)
            config = AutoConfig.from_pretrained(folder, **_LOCAL)
        except Exception as error:  # what transformers raises differs by model and by what is missing
            raise _refusal(folder, "tokenizer", error) from None
        self._tokenizer.padding_side = "right"
        self._num_tokens = int(config.text_config.max_position_embeddings)
        # SigLIP pools the last place, whatever it holds, and was trained on texts padded to the full length.
        self._is_fixed_length = "siglip" in config.model_type

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """See `trainer.batches.text.Tokenizer`."""
        if not texts:
            return np.zeros((0, 1), np.int32), np.zeros(0, np.int32)
        padding = "max_length" if self._is_fixed_length else True
        found = self._tokenizer(
            list(texts),
            padding=padding,
            truncation=True,
            max_length=self._num_tokens,
            return_attention_mask=True,
            return_tensors="np",
        )
        tokens_MT = np.asarray(found["input_ids"], dtype=np.int32)
        if self._is_fixed_length:
            return tokens_MT, np.full(len(texts), self._num_tokens, dtype=np.int32)
        return tokens_MT, np.asarray(found["attention_mask"].sum(axis=1), dtype=np.int32)


def _model(folder: Path, *, is_pretrained: bool) -> Any:
    try:
        if is_pretrained:
            model = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=torch.float32, **_LOCAL)
        else:
            config = AutoConfig.from_pretrained(folder, **_LOCAL)
            model = AutoModel.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    except Exception as error:  # what transformers raises differs by model and by what is missing
        raise _refusal(folder, "encoder", error) from None
    if not (hasattr(model, "get_image_features") and hasattr(model, "get_text_features")):
        raise InputError(f"{folder}: {type(model).__name__} embeds no images and texts apart; name a CLIP or SigLIP")
    return model


def _normalisation(folder: Path) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each colour that the encoder was trained with."""
    for name in _PROCESSORS:
        if (folder / name).is_file():
            content = json.loads((folder / name).read_text())
            content = content.get("image_processor", content)
            if "image_mean" in content and "image_std" in content:
                return torch.tensor(content["image_mean"]), torch.tensor(content["image_std"])
    raise InputError(
        f"{folder}: no image_mean and image_std in {_PROCESSORS[0]}; save the encoder's processor there too"
    )


def _refusal(folder: Path, what: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:200].rstrip(". ")
    return InputError(f"{folder}: its {what} cannot be read ({reason}); name a Hugging Face folder of a CLIP or SigLIP")


def _probe() -> Media:
    one = torch.ones(1, dtype=torch.int64)
    return Media(
        keys_M=np.zeros(1, np.int64),
        images_MSSC=torch.zeros(1, 2, 2, 3, dtype=torch.uint8),
        tokens_MT=one.unsqueeze(1),
        num_tokens_M=one,
        pins_B=torch.zeros(1, dtype=torch.int64),
    )
