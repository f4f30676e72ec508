"""Embeddings of an encoder that is frozen, kept within a bound.

Shape suffixes: M pins, E width of an embedding.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_FLOAT_BYTES = 4


class EmbeddingCache:
    """Embeddings by key; beyond its bound the least recently used leave.

    Args:
        width: E.
        max_bytes: Most bytes of embeddings, float32, on the device that computes them.
    """

    def __init__(self, *, width: int, max_bytes: int) -> None:
        self._capacity = max_bytes // (_FLOAT_BYTES * width)
        self._rows = torch.empty(0, width)
        self._slot_of_key: OrderedDict[int, int] = OrderedDict()  # least recently used first

    @property
    def num_bytes(self) -> int:
        """What the embeddings take, room for growth included."""
        return self._rows.numel() * self._rows.element_size()

    def clear(self) -> None:
        """Forgets everything and gives the memory back."""
        self._slot_of_key.clear()
        self._rows = self._rows.new_empty(0, self._rows.shape[1])

    def fetch(self, keys: Sequence[int], compute: Callable[[list[int]], Tensor]) -> Tensor:
        """Embeddings of keys that differ from each other.

        Args:
            keys: M of them.
            compute: Embeds the keys at the given places; called once at most.

        Returns:
            (M, E) float32, of no gradient.
        """
        missing = [place for place, key in enumerate(keys) if key not in self._slot_of_key]
        if keys and not missing:
            return self._rows[self._touch(keys)]
        fresh = compute(missing)
        known = sorted(set(range(len(keys))) - set(missing))
        found = fresh.new_empty(len(keys), fresh.shape[1])
        found[missing] = fresh
        if known:
            found[known] = self._rows[self._touch([keys[place] for place in known])]
        kept = missing[max(0, len(missing) - self._capacity) :]
        if kept:
            slots = self._claim([keys[place] for place in kept], fresh)
            self._rows[slots] = found[kept]
        return found

    def _touch(self, keys: Sequence[int]) -> list[int]:
        for key in keys:
            self._slot_of_key.move_to_end(key)
        return [self._slot_of_key[key] for key in keys]

    def _claim(self, keys: Sequence[int], like: Tensor) -> list[int]:
        """Slots for new keys: those never used, then those of the least recently used."""
        wanted = min(self._capacity, len(self._slot_of_key) + len(keys))
        if wanted > len(self._rows):
            grown = like.new_empty(min(self._capacity, max(wanted, 2 * len(self._rows))), like.shape[1])
            grown[: len(self._rows)] = self._rows
            self._rows = grown
        for key in keys:
            is_full = len(self._slot_of_key) == self._capacity
            slot = self._slot_of_key.popitem(last=False)[1] if is_full else len(self._slot_of_key)
            self._slot_of_key[key] = slot
        return [self._slot_of_key[key] for key in keys]
