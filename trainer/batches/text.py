"""Texts of pins as numbers.

Shape suffixes: M texts, T tokens of the longest.
"""

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.model.vlm.folder import encoder_folder
from trainer.recipe import VlmConfig

Tokens = tuple[NDArray[np.int32], NDArray[np.int32]]

_WORD = re.compile(r"\w+")


class Tokenizer(Protocol):
    """Texts to numbers."""

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Returns tokens (M, T), padded behind, and how many of them each text has (M,); T is at least 1."""
        ...


@lru_cache(maxsize=4)
def tokenizer_of(config: VlmConfig) -> Tokenizer:
    """The tokenizer of a recipe's encoder; reading one takes a second, so the last few are kept.

    Raises:
        InputError: The encoder's folder is missing or holds no tokenizer.
    """
    if config.encoder == "builtin":
        return HashedWords(num_words=config.num_words, num_tokens=config.num_tokens)
    assert config.path is not None, "a recipe with a Hugging Face encoder names its folder"
    # Importing transformers takes seconds, which other recipes do not owe.
    from trainer.model.vlm.huggingface import PretrainedTokenizer

    return PretrainedTokenizer(encoder_folder(config.path))


class HashedWords:
    """The first words of a text, in lower case, hashed into 1 to ``num_words`` - 1; 0 pads."""

    def __init__(self, *, num_words: int, num_tokens: int) -> None:
        self._num_words, self._num_tokens = num_words, num_tokens

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """See `Tokenizer`."""
        tokens_MT = np.zeros((len(texts), self._num_tokens), dtype=np.int32)
        num_tokens_M = np.zeros(len(texts), dtype=np.int32)
        for row, text in enumerate(texts):
            words = _WORD.findall(text.lower())[: self._num_tokens]
            tokens_MT[row, : len(words)] = [
                1 + zlib.crc32(word.encode()) % max(self._num_words - 1, 1) for word in words
            ]
            num_tokens_M[row] = len(words)
        return tokens_MT, num_tokens_M
