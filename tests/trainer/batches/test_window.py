"""Windows larger than memory, of any shape, against the same rows in memory."""

import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.trainer import tiny
from tests.trainer.batches.days import Shape, rows_of, with_weights, write_days
from trainer.batches.batch import Batch
from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader, batches_of
from trainer.batches.slates import Ints, slate_starts
from trainer.batches.source import Bools, Loaded, go_on, whole
from trainer.batches.window import Window, open_window
from trainer.embeddings.frequency import count_impressions
from trainer.errors import InputError
from trainer.model.ranker import Standardize
from trainer.recipe import Recipe
from trainer.thaw.canary import choose_slates

LARGE = Shape(sizes=tuple(np.random.default_rng(0).integers(1, 7, 60).tolist()), day_cuts=(11, 40), group_rows=16)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=30))
    num_rows = sum(sizes)
    return Shape(
        sizes=tuple(sizes),
        day_cuts=tuple(draw(st.lists(st.integers(0, len(sizes)), max_size=3))),
        file_cuts=tuple(draw(st.sets(st.integers(0, num_rows), max_size=3))),
        group_rows=draw(st.integers(1, 20)),
    )


def recipe_of(shuffle_rows: int, extra: dict[str, str] | None = None) -> Recipe:
    return tiny.recipe({"training.shuffle_rows": str(shuffle_rows), **(extra or {})})


class Watched(Window):
    """Remembers how many rows it was asked for at a time."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.loads: list[int] = []

    def load(self, chunks: Ints, wanted: Bools, check: Callable[[], None] = go_on) -> Loaded:
        found = super().load(chunks, wanted, check)
        self.loads.append(found.columns.num_rows)
        return found


def rows_in(batch: Batch) -> list[int]:
    return [int(value) for value in batch.pin_features_BP[:, 0]]


def assert_same(found: Batch, wanted: Batch) -> None:
    assert found.num_step_rows == wanted.num_step_rows
    for name, value in vars(wanted).items():
        if isinstance(value, Tensor):
            assert torch.equal(getattr(found, name), value), name
    if wanted.media is not None:
        assert found.media is not None
        assert found.media.keys_M[found.media.pins_B].tolist() == wanted.media.keys_M[wanted.media.pins_B].tolist()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in ("buffers", "batches")]


@settings(max_examples=60, deadline=None)
@given(
    shape=shapes(),
    shuffle_rows=st.integers(1, 60),
    batch_rows=st.integers(1, 40),
    num_ranks=st.integers(1, 4),
    epoch=st.integers(0, 3),
)
def test_an_epoch_holds_every_slate_once_and_whole_and_steps_are_the_same_on_any_number_of_ranks(
    shape: Shape, shuffle_rows: int, batch_rows: int, num_ranks: int, epoch: int
) -> None:
    recipe, table = recipe_of(shuffle_rows), rows_of(shape)
    memory = Columns.of_table(table, recipe)
    log_q = memory.count_pins().log_share(memory.pin_id)
    with TemporaryDirectory() as folder:
        window = Watched(write_days(Path(folder), table, shape), recipe)
        alone = SlateReader(window, batch_rows=batch_rows, seed=3)
        whole_steps = list(alone.epoch(epoch))
        assert len(whole_steps) == alone.num_steps(epoch)
        largest = max(int(sizes.sum()) for sizes in window.slate_sizes)
        assert max(window.loads) <= max(shuffle_rows, largest)
        ranks = [
            SlateReader(window, batch_rows=batch_rows, seed=3, rank=rank, num_ranks=num_ranks)
            for rank in range(num_ranks)
        ]
        parts = [list(reader.epoch(epoch)) for reader in ranks]
    assert sorted(chain.from_iterable(map(rows_in, whole_steps))) == list(range(shape.num_rows))
    begun = 0
    for step, batch in enumerate(whole_steps):
        rows = np.array(rows_in(batch))
        slates = memory.request_id[rows]
        starts = slate_starts(slates)
        assert len(np.unique(slates)) == len(starts) - 1, "a slate was cut"
        places = (begun + starts[:-1]) // batch_rows
        assert len(set(places)) == 1
        begun += len(rows)
        assert batch.num_step_rows == len(rows)
        numbers = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        assert_same(batch, memory.gather(rows, slates=numbers, log_q=log_q, num_step_rows=len(rows)))
        mine = [rows_in(batches[step]) for batches in parts]
        assert sorted(chain.from_iterable(mine)) == sorted(rows.tolist())
        of_rank = [list(dict.fromkeys(memory.request_id[part].tolist())) for part in mine]
        in_step = list(dict.fromkeys(slates.tolist()))
        assert of_rank == [in_step[rank::num_ranks] for rank in range(num_ranks)]
        assert {batches[step].num_step_rows for batches in parts} == {batch.num_step_rows}
    assert {len(batches) for batches in parts} == {len(whole_steps)}


@settings(max_examples=25, deadline=None)
@given(shape=shapes(), shuffle_rows=st.integers(1, 60), num_ranks=st.integers(1, 3))
def test_a_pass_is_gone_on_with_at_any_step(shape: Shape, shuffle_rows: int, num_ranks: int) -> None:
    recipe, table = recipe_of(shuffle_rows), rows_of(shape)
    with TemporaryDirectory() as folder:
        window = Window(write_days(Path(folder), table, shape), recipe)
        for source in (window, Columns.of_table(table, recipe)):
            for rank in range(num_ranks):
                reader = SlateReader(source, batch_rows=8, seed=3, rank=rank, num_ranks=num_ranks)
                uninterrupted = list(reader.epoch(1))
                for first_step in range(len(uninterrupted) + 1):
                    rest = list(reader.epoch(1, first_step))
                    assert len(rest) == len(uninterrupted) - first_step
                    for found, wanted in zip(rest, uninterrupted[first_step:], strict=True):
                        assert_same(found, wanted)


@settings(max_examples=25, deadline=None)
@given(shape=shapes(), shuffle_rows=st.integers(1, 60), num_ranks=st.integers(1, 3), batch_rows=st.integers(1, 40))
def test_in_order_a_window_reads_like_rows_in_memory(
    shape: Shape, shuffle_rows: int, num_ranks: int, batch_rows: int
) -> None:
    recipe, table = recipe_of(shuffle_rows), rows_of(shape)
    memory = Columns.of_table(table, recipe)
    with TemporaryDirectory() as folder:
        window = Window(write_days(Path(folder), table, shape), recipe)
        for rank in range(num_ranks):
            readers = [
                SlateReader(source, batch_rows=batch_rows, seed=0, rank=rank, num_ranks=num_ranks)
                for source in (window, memory)
            ]
            assert readers[0].rows_of_rank().tolist() == readers[1].rows_of_rank().tolist()
            for found, wanted in zip(*(reader.in_order() for reader in readers), strict=True):
                assert_same(found, wanted)


@settings(max_examples=25, deadline=None)
@given(shape=shapes(), shuffle_rows=st.integers(1, 60))
def test_a_window_tells_of_its_rows_what_rows_in_memory_tell(shape: Shape, shuffle_rows: int) -> None:
    recipe, table = recipe_of(shuffle_rows), rows_of(shape)
    memory = Columns.of_table(table, recipe)
    with TemporaryDirectory() as folder:
        window = Window(write_days(Path(folder), table, shape), recipe)
        assert window.num_rows == memory.num_rows
        assert np.concatenate(window.slate_sizes).tolist() == memory.slate_sizes[0].tolist() == list(shape.sizes)
        for name in ("request_id", "user_id", "pin_id", "user_features", "pin_features", "labels", "weights"):
            np.testing.assert_array_equal(whole(window, name), getattr(memory, name), err_msg=name)
        counts = [source.count_pins() for source in (window, memory)]
        assert counts[0].pins.tolist() == counts[1].pins.tolist()
        assert counts[0].counts.tolist() == counts[1].counts.tolist()
        shown = [count_impressions(source, recipe.tables) for source in (window, memory)]
        assert all(torch.equal(shown[0][name], shown[1][name]) for name in shown[1])
        slates = [choose_slates(source, num_rows=20, seed=5) for source in (window, memory)]
        assert slates[0].trained.tolist() == slates[1].trained.tolist()
        groups = (slates[0].seen, slates[0].unseen)
        for found, wanted in zip(batches_of(window, *groups), batches_of(memory, *groups), strict=True):
            assert_same(found, wanted)
        fitted = [Standardize(3), Standardize(3)]
        fitted[0].fit(map(torch.tensor, window.parts("pin_features")))
        fitted[1].fit(map(torch.tensor, memory.parts("pin_features")))
    torch.testing.assert_close(fitted[0].mean_F, fitted[1].mean_F)
    torch.testing.assert_close(fitted[0].std_F, fitted[1].std_F)


def test_slates_that_are_left_out_are_read_by_nobody(tmp_path: Path) -> None:
    recipe = recipe_of(40)
    window = Window(write_days(tmp_path, rows_of(LARGE), LARGE), recipe)
    trained = np.arange(0, len(LARGE.sizes), 3)
    reader = SlateReader(window, batch_rows=16, seed=0, slates=trained)
    slate_of_row = np.repeat(np.arange(len(LARGE.sizes)), LARGE.sizes)
    seen = slate_of_row[list(chain.from_iterable(map(rows_in, reader.epoch(0))))]
    assert sorted(set(seen.tolist())) == trained.tolist()
    assert len(seen) == sum(LARGE.sizes[slate] for slate in trained)


def test_each_epoch_draws_buffers_and_slates_anew_from_all_days(tmp_path: Path) -> None:
    window = Window(write_days(tmp_path, rows_of(LARGE), LARGE), recipe_of(64))
    orders = [
        tuple(chain.from_iterable(map(rows_in, SlateReader(window, batch_rows=16, seed=seed).epoch(epoch))))
        for seed in (1, 2)
        for epoch in (0, 1, 2)
    ]
    assert len(set(orders)) == len(orders)
    again = SlateReader(window, batch_rows=16, seed=1)
    assert tuple(chain.from_iterable(map(rows_in, again.epoch(2)))) == orders[2]
    day_of_row = np.searchsorted(np.cumsum(LARGE.sizes)[[10, 39]], np.arange(LARGE.num_rows), side="right")
    assert any(len(set(day_of_row[list(order[:64])].tolist())) > 1 for order in orders)


def test_buffers_of_steps_that_are_left_out_are_not_filled(tmp_path: Path) -> None:
    window = Watched(write_days(tmp_path, rows_of(LARGE), LARGE), recipe_of(40))
    reader = SlateReader(window, batch_rows=16, seed=0)
    list(reader.epoch(0))
    all_of_them = len(window.loads)
    window.loads.clear()
    list(reader.epoch(0, reader.num_steps(0) - 1))
    assert 1 <= len(window.loads) <= 2 < all_of_them


def test_a_rank_holds_its_own_slates_only(tmp_path: Path) -> None:
    window = Watched(write_days(tmp_path, rows_of(LARGE), LARGE), recipe_of(64))
    readers = [SlateReader(window, batch_rows=16, seed=0, rank=rank, num_ranks=4) for rank in range(4)]
    for reader in readers:
        list(reader.epoch(0))
    assert sum(window.loads) == LARGE.num_rows


def test_what_fits_is_read_once_and_kept(tmp_path: Path) -> None:
    days = write_days(tmp_path, rows_of(LARGE), LARGE)
    assert isinstance(open_window(days, recipe_of(LARGE.num_rows)), Columns)
    larger = open_window(days, recipe_of(LARGE.num_rows - 1))
    assert isinstance(larger, Window)
    assert larger.num_rows == LARGE.num_rows


def test_days_with_weights_and_days_without_mix(tmp_path: Path) -> None:
    shape = Shape(sizes=(3, 4, 5), group_rows=4)
    table = rows_of(shape)
    weighted = with_weights(table, np.linspace(1, 9, table.num_rows).tolist())
    recipe = recipe_of(5)
    days = [*write_days(tmp_path / "a", table, shape), *write_days(tmp_path / "b", weighted, shape)]
    wanted = [1.0] * shape.num_rows + weighted["weight"].to_pylist()
    for source in (Columns.read(days, recipe), Window(days, recipe)):
        assert whole(source, "weights").tolist() == wanted
        (batch,) = SlateReader(source, batch_rows=100, seed=0).in_order()
        assert batch.weights_B.tolist() == wanted
        assert batch.weights_B.dtype == torch.float32


def test_a_row_group_that_begins_within_a_slate_is_one_line_that_names_it(tmp_path: Path) -> None:
    shape = Shape(sizes=(2, 40, 1, 7))
    (day,) = write_days(tmp_path, rows_of(shape), shape)
    pq.write_table(rows_of(shape), day.files[0], row_group_size=20)
    with pytest.raises(
        InputError, match=r"0123abcd\.parquet: row group 1 begins within a slate; remove that partition"
    ):
        Window([day], recipe_of(1))


def test_media_are_decoded_with_their_buffer(tmp_path: Path) -> None:
    recipe = recipe_of(40, tiny.BUILTIN_VLM)
    table = rows_of(LARGE, with_media=True)
    window, memory = Window(write_days(tmp_path, table, LARGE), recipe), Columns.of_table(table, recipe)
    assert memory.media is not None
    for batch in SlateReader(window, batch_rows=50, seed=0).epoch(0):
        media = batch.media
        assert media is not None
        assert len(np.unique(media.keys_M)) == len(media.keys_M)
        wanted = memory.media.gather(np.array(rows_in(batch)))
        assert media.keys_M[media.pins_B].tolist() == wanted.keys_M[wanted.pins_B].tolist()
        assert torch.equal(media.images_MSSC[media.pins_B], wanted.images_MSSC[wanted.pins_B])
        assert torch.equal(media.num_tokens_M[media.pins_B], wanted.num_tokens_M[wanted.pins_B])
        places = zip(media.pins_B, wanted.pins_B, strict=True)
        for found, tokens in ((media.tokens_MT[pin], wanted.tokens_MT[other]) for pin, other in places):
            length = min(len(found), len(tokens))
            assert found[:length].tolist() == tokens[:length].tolist()
            assert not found[length:].any() and not tokens[length:].any()


def gone(path: Path) -> None:
    path.unlink()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for place in range(100, len(content) // 2, 50):
        content[place] ^= 0xFF
    path.write_bytes(content)


def replaced(path: Path) -> None:
    shape = Shape(sizes=(3, 3))
    (day,) = write_days(path.parent / "other", rows_of(shape), shape)
    path.write_bytes(Path(day.files[0]).read_bytes())


@pytest.mark.parametrize("harm", [gone, truncated, flipped, replaced])
@pytest.mark.parametrize("when", ["before", "between"])
def test_a_file_that_cannot_be_read_is_one_line_that_names_it(
    tmp_path: Path, harm: Callable[[Path], None], when: str
) -> None:
    days = write_days(tmp_path, rows_of(LARGE), LARGE)
    file = days[1].files[0]

    def read() -> Iterator[Batch]:
        window = Window(days, recipe_of(40))
        if when == "between":
            harm(Path(file))
        yield from SlateReader(window, batch_rows=16, seed=0).epoch(0)

    if when == "before":
        harm(Path(file))
        with pytest.raises(InputError, match=r"remove that partition and prepare its day again$"):
            Columns.read(days, recipe_of(10_000))
    with pytest.raises(InputError, match=r"remove that partition and prepare its day again$") as found:
        list(read())
    assert str(file) in str(found.value) or str(days[1].paths[0]) in str(found.value)
    assert "\n" not in str(found.value)
    assert not threads()


def test_threads_end_with_the_stream_however_it_ends(tmp_path: Path) -> None:
    window = Window(write_days(tmp_path, rows_of(LARGE), LARGE), recipe_of(40))
    reader = SlateReader(window, batch_rows=4, seed=0)
    list(reader.epoch(0))
    assert not threads()
    for num_taken in (0, 1, 3, 20):
        stream = reader.epoch(0)
        for _ in range(num_taken):
            next(stream)
        del stream
        assert not threads()


def test_the_wait_for_batches_is_measured() -> None:
    reader = SlateReader(tiny.columns(), batch_rows=16, seed=0)
    list(reader.epoch(0))
    assert reader.take_wait_s() > 0.0
    assert reader.take_wait_s() == 0.0


def test_rows_of_no_day_are_no_rows(tmp_path: Path) -> None:
    shape = Shape(sizes=(1,), day_cuts=(0, 0))
    days = write_days(tmp_path, rows_of(shape), shape)
    assert [day.num_rows for day in days] == [0, 0, 1]
    assert Columns.read(days, recipe_of(100)).num_rows == 1
