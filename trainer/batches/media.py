"""Images and texts of pins in memory: each distinct pin once, decoded and tokenized when it is read.

Shape suffixes: R rows, B rows of a batch, M distinct pins, S side of an image in pixels, C its 3 colours, T tokens of
the longest text.
"""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from PIL import Image

from trainer.batches.batch import Media
from trainer.batches.text import tokenizer_of
from trainer.errors import InputError
from trainer.recipe import VlmConfig

Ints = NDArray[np.int64]

MEDIA_COLUMNS = ("image", "text")
_FORMATS = ("PNG", "JPEG", "WEBP")
_GREY = 128


@dataclass(frozen=True, kw_only=True)
class PinMedia:
    """Media of the pins of some rows.

    Attributes:
        keys: int64 (M,), a hash of each pin's image and text.
        images: uint8 (M, S, S, C).
        tokens: int32 (M, T), padded behind.
        num_tokens: int32 (M,).
        pin_of_row: int64 (R,), which of the M each row shows.
    """

    keys: Ints
    images: NDArray[np.uint8]
    tokens: NDArray[np.int32]
    num_tokens: NDArray[np.int32]
    pin_of_row: Ints

    def gather(self, rows: Ints) -> Media:
        """What the rows at the given positions (B,) show."""
        pins, pins_B = np.unique(self.pin_of_row[rows], return_inverse=True)
        num_tokens = self.num_tokens[pins]
        longest = max(1, num_tokens.max(initial=0))
        return Media(
            keys_M=self.keys[pins],
            images_MSSC=torch.from_numpy(self.images[pins]),
            tokens_MT=torch.from_numpy(self.tokens[pins, :longest].astype(np.int64)),
            num_tokens_M=torch.from_numpy(num_tokens.astype(np.int64)),
            pins_B=torch.from_numpy(pins_B.astype(np.int64)),
        )


class MediaReader:
    """Collects the newest media of each pin, by ``ts``; of equal ones, and without ``ts``, those given last."""

    def __init__(self, config: VlmConfig) -> None:
        self._config = config
        self._row_of_pin: dict[int, int] = {}
        self._times: list[int] = []
        self._keys: list[int] = []
        self._images: list[NDArray[np.uint8]] = []
        self._texts: list[str] = []

    def add(self, table: pa.Table, source: str) -> None:
        """Takes the last row of each pin, in the order of ``ts`` where the table has it, else of the rows.

        A pin without an image is grey, one without a text has no tokens.

        Args:
            table: Columns ``pin_id``, ``image`` (PNG, JPEG or WebP), ``text`` and, in tables of more than one, ``ts``.
            source: Names the table in errors.

        Raises:
            InputError: An image cannot be decoded.
        """
        times = _times(table)
        newest = _last_row_of_each_pin(table, times)
        chosen = table.select(["pin_id", *MEDIA_COLUMNS]).take(pa.array(newest))
        pins, images, texts = (chosen[name].to_pylist() for name in ("pin_id", *MEDIA_COLUMNS))
        for pin, time, image, text in zip(pins, times[newest].tolist(), images, texts, strict=True):
            row = self._row_of_pin.setdefault(pin, len(self._keys))
            if row < len(self._keys) and time < self._times[row]:
                continue
            key = _key(image, text)
            if row == len(self._keys):
                self._times.append(time)
                self._keys.append(key)
                self._images.append(self._decode(image, pin, source))
                self._texts.append(text or "")
                continue
            self._times[row] = time
            if self._keys[row] != key:
                self._keys[row] = key
                self._images[row] = self._decode(image, pin, source)
                self._texts[row] = text or ""

    def finish(self, pin_id: Ints) -> PinMedia:
        """The media of the rows with these pins (R,), all of which were added."""
        side = self._config.image_pixels
        tokens, num_tokens = tokenizer_of(self._config)(self._texts)
        pins, inverse = np.unique(pin_id, return_inverse=True)
        rows = np.array([self._row_of_pin[pin] for pin in pins.tolist()], dtype=np.int64)
        return PinMedia(
            keys=np.array(self._keys, dtype=np.int64),
            images=np.stack(self._images) if self._images else np.empty((0, side, side, 3), np.uint8),
            tokens=tokens,
            num_tokens=num_tokens,
            pin_of_row=rows[inverse],
        )

    def _decode(self, image: bytes | None, pin: int, source: str) -> NDArray[np.uint8]:
        side = self._config.image_pixels
        if image is None:
            return np.full((side, side, 3), _GREY, dtype=np.uint8)
        try:
            with Image.open(io.BytesIO(image), formats=_FORMATS) as opened:
                rgb = opened.convert("RGB")
        except Exception as error:  # decoders raise what they like when bytes are malformed
            reason = type(error).__name__
            raise InputError(
                f"{source}: column 'image', pin {pin}: cannot be decoded ({reason}); write PNG, JPEG or WebP bytes"
            ) from None
        if rgb.size != (side, side):
            rgb = rgb.resize((side, side), Image.Resampling.BICUBIC)
        return np.asarray(rgb, dtype=np.uint8)


def require_media(names: Sequence[str], source: str) -> None:
    """Refuses columns without media.

    Raises:
        InputError: ``image`` or ``text`` is not among the names.
    """
    for name in MEDIA_COLUMNS:
        if name not in names:
            raise InputError(f"{source}: column '{name}' is missing; log it, or set vlm.encoder to none")


def _times(table: pa.Table) -> Ints:
    if "ts" not in table.column_names:
        return np.arange(table.num_rows)
    return np.asarray(table["ts"].cast(pa.int64()).to_numpy(), dtype=np.int64)


def _last_row_of_each_pin(table: pa.Table, times: Ints) -> Ints:
    pin_id = np.asarray(table["pin_id"].to_numpy(), dtype=np.int64)
    age = np.argsort(times, kind="stable")
    _, last = np.unique(pin_id[age][::-1], return_index=True)
    return np.sort(age[len(age) - 1 - last])


def _key(image: bytes | None, text: str | None) -> int:
    # What is absent and what is empty look the same to the encoder's text, not to its image.
    digest = hashlib.blake2b(f"{len(text or '')} {text or ''}".encode(), digest_size=8)
    digest.update(b"\0" if image is None else b"\1" + image)
    return int.from_bytes(digest.digest(), "little", signed=True)
