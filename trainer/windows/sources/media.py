"""Thumbnails and titles of synthetic pins: each carries a part of a pin's latent vector for a vision-language model.

The thumbnail shows the first quarter of the dimensions as smooth waves of colour; the title names the second quarter in
words. The rest of the vector shows nowhere.
"""

import struct
import zlib
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

THUMBNAIL_PIXELS: Final = 16
_LEVELS: Final = np.array([-0.7, 0.0, 0.7], np.float32)
_WORDS: Final = (
    ("tiny", "simple", "bold", "grand"),
    ("winter", "autumn", "spring", "summer"),
    ("vintage", "classic", "modern", "futuristic"),
    ("kitchen", "bedroom", "garden", "terrace"),
    ("wooden", "linen", "ceramic", "steel"),
    ("quick", "easy", "weekend", "masterful"),
    ("pastel", "earthy", "bright", "neon"),
    ("recipe", "outfit", "journey", "workshop"),
)


def thumbnails(latents_NL: NDArray[np.float32]) -> pa.Array:
    """PNG images of 16 x 16 RGB pixels, one a pin: binary (N,)."""
    num_shown = max(1, latents_NL.shape[1] // 4)
    waves = _waves(num_shown)
    values = latents_NL[:, :num_shown] @ waves.reshape(num_shown, -1) / np.float32(np.sqrt(num_shown))
    pixels = np.asarray(255.0 / (1.0 + np.exp(-1.5 * values)), dtype=np.uint8)
    scanlines = np.zeros((len(pixels), THUMBNAIL_PIXELS, 1 + 3 * THUMBNAIL_PIXELS), np.uint8)
    # The first byte of a scanline names its filter: 0 is none.
    scanlines[:, :, 1:] = pixels.reshape(-1, THUMBNAIL_PIXELS, 3 * THUMBNAIL_PIXELS)
    return pa.array([_png(image) for image in scanlines], pa.binary())


def titles(latents_NL: NDArray[np.float32]) -> pa.Array:
    """Titles, one a pin: string (N,), a word for each shown dimension, at most 8."""
    num_hidden = max(1, latents_NL.shape[1] // 4)
    shown = latents_NL[:, num_hidden : 2 * num_hidden][:, : len(_WORDS)]
    words = [
        pa.array(vocabulary).take(pa.array(np.searchsorted(_LEVELS, shown[:, column])))
        for column, vocabulary in enumerate(_WORDS[: shown.shape[1]])
    ]
    return pc.binary_join_element_wise(*words, " ")


def _waves(count: int) -> NDArray[np.float32]:
    """Fixed smooth patterns, (count, pixels, pixels, 3): the same for every log, so that a model may carry over."""
    rng = np.random.default_rng(20240229)
    y, x = np.mgrid[0:THUMBNAIL_PIXELS, 0:THUMBNAIL_PIXELS] / THUMBNAIL_PIXELS
    frequency_y, frequency_x = rng.uniform(-1.5, 1.5, (2, count, 1, 1, 3))
    phase = rng.uniform(0.0, 1.0, (count, 1, 1, 3))
    angle = frequency_y * y[None, :, :, None] + frequency_x * x[None, :, :, None] + phase
    return np.asarray(np.cos(2.0 * np.pi * angle), dtype=np.float32)


def _png(scanlines: NDArray[np.uint8]) -> bytes:
    """A PNG file (W3C PNG, second edition) of 8-bit RGB scanlines, each led by its filter byte."""
    header = struct.pack(">IIBBBBB", THUMBNAIL_PIXELS, THUMBNAIL_PIXELS, 8, 2, 0, 0, 0)
    # Stored, not deflated: waves hardly shrink, and stored bytes are the same under every version of zlib.
    data = zlib.compress(scanlines.tobytes(), 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
