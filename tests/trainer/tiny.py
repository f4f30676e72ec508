"""Rows and recipes small enough for tests, made from a seed; every value that matters is set here, not by defaults."""

import io
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from trainer.batches.columns import Columns
from trainer.recipe import (
    BackboneConfig,
    GroupConfig,
    GroupsConfig,
    LogsConfig,
    LossesConfig,
    ModelConfig,
    Recipe,
    TablesConfig,
    ThawConfig,
    TrainingConfig,
    WindowConfig,
)
from trainer.windows.contract import arrow_schema

NUM_USERS, NUM_PINS, HISTORY_LENGTH = 12, 40, 4
LABELS = ("save", "click")
BUILTIN_VLM = {
    "vlm.encoder": "builtin",
    "vlm.image_pixels": "4",
    "vlm.patch_pixels": "2",
    "vlm.num_tokens": "3",
    "vlm.num_words": "16",
    "vlm.width": "6",
}


def recipe(settings: Mapping[str, str] | None = None) -> Recipe:
    """A small recipe of two heads, with dotted settings on top."""
    base = Recipe(
        name="tiny",
        logs=LogsConfig(uri="logs", labels=LABELS, num_user_features=2, num_pin_features=3),
        tables=TablesConfig(num_user_rows=17, num_pin_rows=33, dim=4, hash_seed=3),
        window=WindowConfig(num_days=3),
        backbone=BackboneConfig(num_days=3, num_epochs=1),
        model=ModelConfig(
            history_length=HISTORY_LENGTH,
            num_transformer_layers=1,
            num_attention_heads=2,
            num_cross_layers=1,
            hidden_sizes=(8,),
            dropout=0.0,
        ),
        losses=LossesConfig(head_weights=(1.0, 0.5), pairwise_weight=0.1, contrastive_weight=0.1, temperature=0.2),
        thaw=ThawConfig(arm="delayed", num_epochs=2, state="keep"),
        groups=GroupsConfig(tables=GroupConfig(learning_rate=0.05), network=GroupConfig(learning_rate=0.01)),
        training=TrainingConfig(num_ranks=1, batch_rows=16, seed=5),
    )
    return base.override(settings or {})


def table(num_slates: int = 20, seed: int = 0) -> pa.Table:
    """Slates of 1 to 6 rows in the log contract, histories of 0 to 7 pins, saves that tastes of users and pins tell."""
    rng = np.random.default_rng(seed)
    tastes = np.random.default_rng(99)
    user_taste, pin_taste = tastes.standard_normal((NUM_USERS, 2)), tastes.standard_normal((NUM_PINS, 2))
    slate = np.repeat(np.arange(num_slates), rng.integers(1, 7, num_slates))
    user, pin = rng.integers(NUM_USERS, size=num_slates)[slate], rng.integers(NUM_PINS, size=len(slate))
    save = rng.random(len(slate)) < 1 / (1 + np.exp(1 - 2 * (user_taste[user] * pin_taste[pin]).sum(axis=1)))
    lengths = rng.integers(0, 8, len(slate))
    columns = {
        "request_id": 1000 + 7 * slate,
        "user_id": user,
        "pin_id": pin,
        "ts": pa.array(slate).cast(pa.timestamp("us", tz="UTC")),
        "position": np.arange(len(slate)) - np.searchsorted(slate, slate),
        "save": save,
        "click": save | (rng.random(len(slate)) < 0.3),
        "user_features": [list(values) for values in rng.standard_normal((len(slate), 2))],
        "pin_features": [list(values) for values in rng.standard_normal((len(slate), 3))],
        "history": [list(rng.integers(NUM_PINS, size=length)) for length in lengths],
        "history_actions": [list(rng.integers(1, 4, size=length)) for length in lengths],
    }
    schema = arrow_schema(recipe().logs)
    return pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()}).cast(schema)


def table_with_media(num_slates: int = 20, seed: int = 0) -> pa.Table:
    """The same rows, each pin with a picture of noise and a title of one to three words."""
    rows = table(num_slates, seed)
    rng = np.random.default_rng(7)
    images = rng.integers(256, size=(NUM_PINS, 4, 4, 3)).astype(np.uint8)
    titles = [
        " ".join(rng.choice(["grand", "piano", "tiny", "desk", "oak"], size=1 + pin % 3)) for pin in range(NUM_PINS)
    ]
    pins = rows["pin_id"].to_pylist()
    shown = {"image": pa.array([_png(images[pin]) for pin in pins]), "text": pa.array([titles[pin] for pin in pins])}
    for name, values in shown.items():
        rows = rows.append_column(name, values)
    return rows


def _png(pixels: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def columns(num_slates: int = 20, seed: int = 0, history_length: int = HISTORY_LENGTH) -> Columns:
    """The same rows as training reads them."""
    settings = {"model.history_length": str(history_length)}
    return Columns.of_table(table(num_slates, seed), recipe(settings))
