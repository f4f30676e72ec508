import io
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from tests.trainer import tiny
from tests.trainer.windows.partitions import write_partition
from trainer.batches.columns import Columns
from trainer.batches.text import HashedWords
from trainer.errors import InputError
from trainer.recipe import Recipe


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return tiny.recipe(tiny.BUILTIN_VLM)


def test_a_batch_holds_its_distinct_pins_once(recipe: Recipe) -> None:
    table = tiny.table_with_media()
    columns = Columns.of_table(table, recipe)
    rows = np.random.default_rng(0).permutation(table.num_rows)[:30]
    batch = columns.gather(rows, slates=rows, log_q=np.zeros(table.num_rows, np.float32), num_step_rows=30)
    media = batch.media
    assert media is not None
    assert len(media.keys_M) == len(set(batch.pin_ids_B.tolist())) == len(media.images_MSSC)
    assert media.images_MSSC.dtype == torch.uint8
    words = HashedWords(num_words=recipe.vlm.num_words, num_tokens=recipe.vlm.num_tokens)
    for row, pin in zip(rows, media.pins_B, strict=True):
        wanted = np.asarray(Image.open(io.BytesIO(table["image"][int(row)].as_py())))
        assert np.array_equal(media.images_MSSC[pin], wanted)
        tokens, num_tokens = words([table["text"][int(row)].as_py()])
        found = media.tokens_MT[pin]
        assert found.tolist() == tokens[0][: len(found)].tolist()
        assert media.num_tokens_M[pin] == num_tokens[0]


def test_moving_a_batch_moves_its_media(recipe: Recipe) -> None:
    columns = Columns.of_table(tiny.table_with_media(), recipe)
    rows = np.arange(3)
    batch = columns.gather(rows, slates=rows, log_q=np.zeros(columns.num_rows, np.float32), num_step_rows=3)
    moved = batch.to(torch.device("meta"))
    assert moved.media is not None
    assert {moved.media.images_MSSC.device.type, moved.media.pins_B.device.type, moved.labels_BH.device.type} == {
        "meta"
    }


def test_no_rows_are_media_too(recipe: Recipe) -> None:
    columns = Columns.of_table(tiny.table_with_media(), recipe)
    none = np.empty(0, np.int64)
    media = columns.gather(none, slates=none, log_q=np.zeros(columns.num_rows, np.float32), num_step_rows=3).media
    assert media is not None
    assert media.images_MSSC.shape == (0, 4, 4, 3)


def test_the_newest_media_of_a_pin_are_kept(recipe: Recipe, tmp_path: Path) -> None:
    """Of the newest day, and in it of the latest impression, wherever the shuffle of the day put it."""
    row = tiny.table_with_media().slice(0, 1)
    days = {0: [(5, "old")], 1: [(9, "newest"), (7, "stale")]}
    partitions = []
    for number, texts in days.items():
        tables = [with_values(row, ts=ts, text=text, image=png(ts)) for ts, text in texts]
        day = date(2024, 1, 1) + timedelta(days=number)
        partitions.append(write_partition(tmp_path / str(number), day, pa.concat_tables(tables)))
    media = Columns.read(partitions, recipe).media
    assert media is not None
    assert media.pin_of_row.tolist() == [0, 0, 0]
    assert media.images[0, 0, 0].tolist() == [9, 9, 9]
    assert media.tokens[0].tolist() == HashedWords(num_words=16, num_tokens=3)(["newest"])[0][0].tolist()


def test_the_same_media_have_the_same_key_and_others_another(recipe: Recipe) -> None:
    row = tiny.table_with_media().slice(0, 1)
    looks = [(png(1), "a"), (png(1), "a"), (png(2), "a"), (png(1), "b"), (None, "a"), (png(1), None)]
    tables = [with_values(row, pin_id=pin, image=image, text=text) for pin, (image, text) in enumerate(looks)]
    media = Columns.of_table(pa.concat_tables(tables), recipe).media
    assert media is not None
    keys = media.keys.tolist()
    assert keys[0] == keys[1]
    assert len(set(keys)) == 5


def test_absent_media_are_grey_and_wordless(recipe: Recipe) -> None:
    row = with_values(tiny.table_with_media().slice(0, 1), image=None, text=None)
    media = Columns.of_table(row, recipe).media
    assert media is not None
    assert (media.images == 128).all()
    assert media.num_tokens.tolist() == [0]


@pytest.mark.parametrize(
    ("mode", "kind"), [("RGB", "JPEG"), ("RGBA", "PNG"), ("L", "PNG"), ("P", "PNG"), ("RGB", "WEBP")]
)
def test_images_of_any_kind_and_size_become_small_squares(recipe: Recipe, mode: str, kind: str) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (9, 17), (200, 200, 200)).convert(mode).save(stream, kind)
    row = with_values(tiny.table_with_media().slice(0, 1), image=stream.getvalue())
    media = Columns.of_table(row, recipe).media
    assert media is not None
    assert media.images.shape == (1, 4, 4, 3)
    assert np.abs(media.images.astype(int) - 200).max() <= 8


@pytest.mark.parametrize("image", [b"", b"no image", b"GIF89a", None], ids=["empty", "text", "gif", "cut"])
def test_an_image_that_cannot_be_decoded_is_refused_by_its_pin(recipe: Recipe, image: bytes | None) -> None:
    row = with_values(tiny.table_with_media().slice(0, 1), pin_id=77, image=png(3)[:-30] if image is None else image)
    with pytest.raises(
        InputError, match=r"^the log: column 'image', pin 77: cannot be decoded \(\w+\); write PNG"
    ) as found:
        Columns.of_table(row, recipe, "the log")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", ["image", "text"])
def test_a_log_without_media_is_refused(recipe: Recipe, tmp_path: Path, name: str) -> None:
    table = tiny.table_with_media().drop_columns([name])
    with pytest.raises(InputError, match=rf"^table: column '{name}' is missing; log it, or set vlm\.encoder to none$"):
        Columns.of_table(table, recipe)
    partition = write_partition(tmp_path, date(2024, 1, 1), table)
    with pytest.raises(InputError, match=rf"part-00000-0123abcd\.parquet: column '{name}' is missing"):
        Columns.read([partition], recipe)


def test_without_an_encoder_no_media_are_read() -> None:
    assert Columns.of_table(tiny.table_with_media(), tiny.recipe()).media is None


def test_words_are_hashed_without_case_and_marks_and_cut() -> None:
    words = HashedWords(num_words=1000, num_tokens=2)
    tokens, num_tokens = words(["Grand piano", "grand, PIANO! for sale", "", "  ...  ", "\u00e9t\u00e9"])
    assert tokens[0].tolist() == tokens[1].tolist()
    assert num_tokens.tolist() == [2, 2, 0, 0, 1]
    assert (tokens[0] > 0).all()
    assert not tokens[2:4].any()


def png(value: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), (value, value, value)).save(stream, "PNG")
    return stream.getvalue()


def with_values(row: pa.Table, **values: object) -> pa.Table:
    """A table of one row with other values; a time is in microseconds."""
    for name, value in values.items():
        kind = row.schema.field(name).type
        array = pa.array([value], pa.int64()).cast(kind) if name == "ts" else pa.array([value], kind)
        row = row.set_column(row.column_names.index(name), name, array)
    return row
