"""Days of logs that faults are injected around, and what they come to without any."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.faults import ledger
from tests.trainer.windows.logs import DAY, columns_of, recipe_for, table_of
from tests.trainer.windows.partitions import read_rows
from trainer.recipe import Recipe
from trainer.storage.publishing import parquet_writer
from trainer.storage.uris import join
from trainer.windows import preparation
from trainer.windows.logs import day_folder
from trainer.windows.preparation import prepare_day

NUM_DAYS, NUM_FILES, NUM_SLATES = 3, 3, 60
DAYS = tuple(DAY + timedelta(days=offset) for offset in range(NUM_DAYS))


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log and what preparing its days gives.

    Attributes:
        uri: Where it lies on this machine.
        recipe: Reads it.
        rows: The prepared rows by day.
    """

    uri: str
    recipe: Recipe
    rows: dict[date, pa.Table]


def recipe_of(uri: str) -> Recipe:
    """Reads windows in small buffers, so that reading goes on while batches are made."""
    return recipe_for(uri).override({"training.shuffle_rows": "100"})


def write_files(uri: str, day: date) -> None:
    """A day in several files of several row groups, with duplicates across files."""
    whole = table_of(columns_of(num_slates=NUM_SLATES, day=day))
    size = whole.num_rows // NUM_FILES
    for number in range(NUM_FILES):
        part = pa.concat_tables([whole.slice(number * size, size), whole.slice(number * 7, 3)])
        with parquet_writer(join(day_folder(uri, day), f"part-{number:05}.parquet"), part.schema) as writer:
            writer.write_table(part, row_group_size=40)


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Read it, do not change it."""
    folder = tmp_path_factory.mktemp("log")
    uri = str(folder / "log")
    for day in DAYS:
        write_files(uri, day)
    recipe = recipe_of(uri)
    rows = {day: read_rows(prepare_day(recipe, day, str(folder / "store"))) for day in DAYS}
    return Log(uri=uri, recipe=recipe, rows=rows)


@pytest.fixture(autouse=True)
def spilling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Days of some hundred rows go through files on disk, as large ones do."""
    monkeypatch.setattr(preparation, "BUCKET_BYTES", 20_000)


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Chance, by a seed that the summary names; a parameter of that name sets it."""
    seed = request.node.callspec.params.get("seed", 0) if hasattr(request.node, "callspec") else 0
    ledger.seeds.append(seed)
    return random.Random(seed)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path / "store")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(ledger.summary())
