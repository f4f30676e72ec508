"""Sections on the model: tables, network, vision-language encoder and losses."""

from typing import Literal

from pydantic.dataclasses import dataclass

from trainer.recipe.types import (
    STRICT_KEYS,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Probability,
)


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class TablesConfig:
    """The ID embedding tables; one pin table serves candidate, history and negatives.

    Attributes:
        num_user_rows: Rows of the user table; ids are hashed into them.
        num_pin_rows: Rows of the pin table.
        dim: Width of a row, in float32 values.
        hash_seed: Seed of the id hash; part of a backbone's identity.
    """

    num_user_rows: PositiveInt
    num_pin_rows: PositiveInt
    dim: PositiveInt = 16
    hash_seed: int = 0


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class ModelConfig:
    """The dense network.

    Attributes:
        history_length: Most recent engagements that the transformer reads.
        num_transformer_layers: Encoder layers over the history.
        num_attention_heads: Heads of each; divides the transformer's width, which is twice ``tables.dim``.
        num_cross_layers: Full-rank DCNv2 layers.
        hidden_sizes: Widths of the tower between crossing and heads.
        dropout: Dropout in the tower.
    """

    history_length: PositiveInt = 20
    num_transformer_layers: PositiveInt = 1
    num_attention_heads: PositiveInt = 2
    num_cross_layers: PositiveInt = 2
    hidden_sizes: tuple[PositiveInt, ...] = (64, 32)
    dropout: Probability = 0.0


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class VlmConfig:
    """The vision-language encoder of pins (``trainer/model/vlm``); the log must hold ``image`` and ``text``.

    Attributes:
        encoder: ``none``, the small ``builtin`` one, trained from scratch, or a ``huggingface`` one from a folder.
        path: Folder of the Hugging Face encoder, local or ``gs://``; weights in safetensors.
        image_pixels: Side of the square that images are resized to when they are read; a Hugging Face encoder scales
            them to its own.
        patch_pixels: ``builtin``: side of its square patches; divides ``image_pixels``.
        num_tokens: Most tokens of a title that are read.
        num_words: ``builtin``: rows of its word table; words are hashed into them.
        width: ``builtin``: width of its tokens.
        num_layers: ``builtin``: its transformer layers.
        cache_mib: Most memory for the embeddings that are kept while an encoder is frozen.
    """

    encoder: Literal["none", "builtin", "huggingface"] = "none"
    path: str | None = None
    image_pixels: PositiveInt = 16
    patch_pixels: PositiveInt = 8
    num_tokens: PositiveInt = 4
    num_words: PositiveInt = 4096
    width: PositiveInt = 32
    num_layers: NonNegativeInt = 1
    cache_mib: PositiveInt = 256

    def __post_init__(self) -> None:
        if (self.path is not None) != (self.encoder == "huggingface"):
            raise ValueError("path belongs to encoder 'huggingface', which needs it")
        if self.image_pixels % self.patch_pixels:
            raise ValueError("patch_pixels must divide image_pixels")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class LossesConfig:
    """Weights of the losses.

    Attributes:
        head_weights: Weight of each label's binary cross-entropy, in the order of ``logs.labels``.
        pairwise_weight: Weight of the within-slate pairwise logistic loss on ``save``.
        contrastive_weight: Weight of the user-to-pin in-batch softmax.
        temperature: Temperature of that softmax.
    """

    head_weights: tuple[NonNegativeFloat, ...] = (1.0,)
    pairwise_weight: NonNegativeFloat = 0.1
    contrastive_weight: NonNegativeFloat = 0.05
    temperature: PositiveFloat = 0.1
