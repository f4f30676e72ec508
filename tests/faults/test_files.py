"""Files that are broken, cut short, of another shape, changed while they are read, or from another time."""

import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults import ledger
from tests.faults.checks import check_nothing, check_same, check_told
from tests.faults.conftest import DAYS, NUM_FILES, Log, recipe_of
from tests.trainer.windows.partitions import read_rows
from trainer.batches.reader import SlateReader
from trainer.batches.window import open_window
from trainer.recipe import Recipe
from trainer.windows.manifest import Partition, load_partition
from trainer.windows.preparation import prepare_day

pytestmark = pytest.mark.faults

DAY = DAYS[0]


@pytest.fixture
def mine(log: Log, tmp_path: Path) -> Path:
    """A copy of the log that may be broken."""
    return Path(shutil.copytree(log.uri, tmp_path / "log"))


def file_of(log: Path, number: int) -> Path:
    return log / f"dt={DAY}" / f"part-{number:05}.parquet"


def cut(content: bytearray, dice: random.Random) -> None:
    del content[dice.randrange(len(content)) :]


def flip(content: bytearray, dice: random.Random) -> None:
    for _ in range(dice.choice([1, 1, 4])):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)


def blank(content: bytearray, dice: random.Random) -> None:
    """Pages that a file system lost come back as zeros."""
    start = dice.randrange(len(content))
    end = min(len(content), start + dice.choice([64, 512, 4096]))
    content[start:end] = bytes(end - start)


def repeat(content: bytearray, dice: random.Random) -> None:
    content += content[dice.randrange(len(content)) :]


BREAKS = (cut, flip, blank, repeat)


def broken(file: Path, how: Callable[[bytearray, random.Random], None], dice: random.Random) -> bool:
    """Breaks a file; whether it is another now."""
    before = file.read_bytes()
    content = bytearray(before)
    how(content, dice)
    file.write_bytes(content)
    return bytes(content) != before


def attempt(recipe: Recipe, day: date, store: str) -> str | Exception:
    try:
        return prepare_day(recipe, day, store)
    except Exception as error:
        return error


@pytest.mark.parametrize("how", BREAKS, ids=lambda how: how.__name__)
@pytest.mark.parametrize("seed", range(71, 83))
def test_a_broken_input_is_one_line_and_publishes_nothing(
    log: Log, mine: Path, store: str, dice: random.Random, how: Callable[..., None], seed: int
) -> None:
    """Unless what broke is read by nobody: then the rows are the same."""
    if not broken(file_of(mine, dice.randrange(NUM_FILES)), how, dice):
        return
    ledger.injected[f"input {how.__name__}"] += 1
    told = attempt(recipe_of(str(mine)), DAY, store)
    if isinstance(told, Exception):
        check_told(told)
        assert f"dt={DAY}" in str(told)
        check_nothing(store, DAY)
    else:
        check_same(log, DAY, told)


@pytest.mark.parametrize("how", BREAKS, ids=lambda how: how.__name__)
@pytest.mark.parametrize("seed", range(83, 91))
def test_a_broken_prepared_day_is_never_trained_on(
    log: Log, store: str, dice: random.Random, how: Callable[..., None], seed: int
) -> None:
    partition = load_partition(prepare_day(log.recipe, DAY, store))
    if not broken(Path(dice.choice(partition.files)), how, dice):
        return
    ledger.injected[f"prepared {how.__name__}"] += 1
    try:
        # A window is assembled of it later, or was before and is read now.
        load_partition(partition.paths[0])
        rows = read_rows(partition)
        num_rows = num_rows_read(partition, log.recipe)
    except Exception as error:
        assert not isinstance(error, AssertionError)
        told = failure(lambda: num_rows_read(load_partition(partition.paths[0]), log.recipe))
        if told is not None:
            check_told(told)
    else:
        assert rows.equals(log.rows[DAY])
        assert num_rows == log.rows[DAY].num_rows


def num_rows_read(partition: Partition, recipe: Recipe) -> int:
    reader = SlateReader(open_window([partition], recipe), batch_rows=64, seed=3)
    return sum(len(batch.user_ids_B) for batch in reader.epoch(0))


def failure(do: Callable[[], object]) -> Exception | None:
    try:
        do()
    except Exception as error:
        return error
    return None


def change(log: Path, when_s: float, stop: threading.Event, dice: random.Random) -> None:
    """Writes a file again and again, in one step or in place, until told to stop."""
    content = file_of(log, 1).read_bytes()
    while not stop.wait(when_s):
        target = file_of(log, dice.randrange(NUM_FILES))
        if dice.random() < 0.5:
            aside = target.with_name(".aside")
            aside.write_bytes(content)
            aside.replace(target)
        else:
            target.write_bytes(content)
        ledger.injected["changed while read"] += 1


@pytest.mark.parametrize("seed", range(91, 99))
def test_files_that_change_while_they_are_read_make_no_mixed_day(
    mine: Path, store: str, dice: random.Random, seed: int
) -> None:
    """A day is that of files as they were together, or the change is told."""
    stop = threading.Event()
    changing = threading.Thread(target=change, args=(mine, dice.uniform(0.001, 0.03), stop, random.Random(seed)))
    changing.start()
    told = [attempt(recipe_of(str(mine)), DAY, store) for _ in range(3)]
    stop.set()
    changing.join()
    for outcome in told:
        if isinstance(outcome, Exception):
            check_told(outcome)
    final = prepare_day(recipe_of(str(mine)), DAY, store)
    assert read_rows(final).num_rows == load_partition(final).num_rows
    fresh = prepare_day(recipe_of(str(mine)), DAY, f"{store}-fresh")
    assert read_rows(final).equals(read_rows(fresh)), "what was remembered is what would be made now"


def without(table: pa.Table, name: str) -> pa.Table:
    return table.drop_columns([name])


def retyped(table: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    index = table.column_names.index(name)
    return table.set_column(index, name, pa.nulls(table.num_rows, kind))


DRIFTS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no label": partial(without, name="save"),
    "no history": partial(without, name="history"),
    "no features": partial(without, name="user_features"),
    "no time": partial(without, name="ts"),
    "renamed": lambda table: table.rename_columns([{"save": "saved"}.get(name, name) for name in table.column_names]),
    "text ids": lambda table: retyped(table, "user_id", pa.string()),
    "structs": lambda table: retyped(table, "history", pa.struct([("a", pa.int64())])),
    "nulls": lambda table: retyped(table, "pin_id", pa.int64()),
    "lengths": lambda table: retyped(table, "user_features", pa.list_(pa.float32())),
    "empty": lambda table: table.slice(0, 0).select(["ts"]),
}


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("number", range(NUM_FILES))
def test_one_file_of_another_shape_is_one_line_that_names_it(mine: Path, store: str, drift: str, number: int) -> None:
    file = file_of(mine, number)
    pq.write_table(DRIFTS[drift](pq.read_table(file)), file)
    ledger.injected["schema drift"] += 1
    told = attempt(recipe_of(str(mine)), DAY, store)
    assert isinstance(told, Exception)
    check_told(told)
    assert file.name in str(told)
    check_nothing(store, DAY)


@pytest.mark.parametrize("number", range(NUM_FILES))
def test_columns_that_nobody_asked_for_and_another_order_change_nothing(
    log: Log, mine: Path, store: str, number: int
) -> None:
    table = pq.read_table(file_of(mine, number))
    wider = table.append_column("new", pa.array(range(table.num_rows)))
    pq.write_table(wider.select(wider.column_names[::-1]), file_of(mine, number))
    ledger.injected["schema drift"] += 1
    check_same(log, DAY, prepare_day(recipe_of(str(mine)), DAY, store))


YEAR_S = 365.0 * 86_400


@pytest.mark.parametrize("skew_s", [-30 * YEAR_S, -3600.0, 0.0, 3600.0, 10 * YEAR_S])
def test_clocks_that_disagree_hide_no_change(log: Log, mine: Path, store: str, skew_s: float) -> None:
    """A file server's times may be anything; a change of the same size under the same time is found all the same."""
    then_s = time.time() + skew_s
    for number in range(NUM_FILES):
        os.utime(file_of(mine, number), (then_s, then_s))
    recipe = recipe_of(str(mine))
    first = prepare_day(recipe, DAY, store)
    check_same(log, DAY, first)
    assert prepare_day(recipe, DAY, store) == first
    content = file_of(mine, 0).read_bytes()
    for other in (file_of(mine, 1).read_bytes(), content):
        file_of(mine, 0).write_bytes(other)
        os.utime(file_of(mine, 0), (then_s, then_s))
        ledger.injected["clock skew"] += 1
        again = prepare_day(recipe, DAY, store)
        assert (again == first) == (other == content)
    check_same(log, DAY, again)
