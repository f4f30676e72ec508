"""A CLIP and a SigLIP of random weights, small enough for tests, as folders in the shape of Hugging Face's."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import CLIPConfig, CLIPModel, PreTrainedTokenizerFast, SiglipConfig, SiglipModel

WORDS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "grand", "piano", "tiny", "desk", "oak")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
IMAGE_PIXELS, MAX_TOKENS = 8, 6

_LAYER = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
_TEXT = {
    **_LAYER,
    "vocab_size": len(WORDS),
    "max_position_embeddings": MAX_TOKENS,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
_VISION = {**_LAYER, "image_size": IMAGE_PIXELS, "patch_size": 4}


def write_clip(folder: Path) -> Path:
    torch.manual_seed(3)
    config = CLIPConfig(text_config={**_TEXT, "projection_dim": 5}, vision_config=_VISION, projection_dim=5)
    return _write(folder, CLIPModel(config))


def write_siglip(folder: Path) -> Path:
    torch.manual_seed(4)
    return _write(folder, SiglipModel(SiglipConfig(text_config={**_TEXT, "projection_size": 8}, vision_config=_VISION)))


def _write(folder: Path, model: CLIPModel | SiglipModel) -> Path:
    model.save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 2), ("[EOS]", 3)])
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]"
    ).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": MEAN, "image_std": STD}))
    return folder
