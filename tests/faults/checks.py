"""What must hold whatever happened."""

from datetime import date

import pyarrow as pa

from tests.faults.conftest import Log
from tests.trainer.windows.partitions import read_rows
from trainer.errors import InputError
from trainer.storage.errors import StorageError
from trainer.storage.filesystem import list_stored
from trainer.storage.uris import join, parent_of
from trainer.windows.manifest import PARTITION_JSON, load_partition


def published(store: str, day: date) -> list[str]:
    """The partitions of a day that are there."""
    folder = join(store, "partitions", f"dt={day}")
    names = [file.name for file in list_stored(folder, is_recursive=True)]
    return [join(folder, parent_of(name)) for name in names if name.endswith(f"/{PARTITION_JSON}")]


def check_whole(store: str, day: date, rows: pa.Table) -> list[str]:
    """What is published is whole and has these rows; nothing may be published."""
    found = published(store, day)
    for path in found:
        assert read_rows(load_partition(path)).equals(rows), path
    return found


def check_nothing(store: str, day: date) -> None:
    """Nothing is published."""
    assert published(store, day) == []


def check_told(error: BaseException | None) -> None:
    """Who failed said so in one line."""
    assert isinstance(error, InputError | StorageError), repr(error)
    line = str(error)
    assert line and "\n" not in line, line
    assert len(line) < 700, line


def check_same(log: Log, day: date, partition: str) -> None:
    """A partition has the rows that it has without faults, in their order."""
    assert read_rows(partition).equals(log.rows[day])
