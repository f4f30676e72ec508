"""How a log lies in storage: a folder a day with Parquet files in it, local or in ``gs://``."""

import hashlib
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa

from trainer.errors import InputError
from trainer.storage.errors import explained
from trainer.storage.filesystem import Stored, list_folders, list_stored, stat
from trainer.storage.publishing import file_aside, write_parquet
from trainer.storage.uris import is_gcs, join, local_path, name_of

_DAY_FOLDER = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")
_FIRST_FILE = "part-00000.parquet"


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What one input file was when it was read.

    Attributes:
        name: Its name.
        num_bytes: Its size.
        digest: Of its content: SHA-256 (hex) of a local file; in ``gs://`` generation and CRC32C, which storage keeps.
    """

    name: str
    num_bytes: int
    digest: str


def day_folder(logs_uri: str, day: date) -> str:
    """``<logs_uri>/dt=YYYY-MM-DD``."""
    return join(logs_uri, f"dt={day.isoformat()}")


def write_day(out: str, day: date, table: pa.Table) -> None:
    """Publishes one day of a log as ``<out>/dt=YYYY-MM-DD/part-00000.parquet``, replacing it if it is there.

    Args:
        out: Folder of the log; made when missing.
        day: UTC day that every ``ts`` of `table` falls on.
        table: Rows in the log contract, see `trainer.windows.contract.arrow_schema`.

    Raises:
        InputError: `out` cannot be written to.
        StorageError: Storage failed for too long.
    """
    target = join(day_folder(out, day), _FIRST_FILE)
    if is_gcs(target):
        return write_parquet(target, table)
    with file_aside(local_path(target)) as aside:
        write_parquet(aside, table)


def list_days(logs_uri: str) -> list[date]:
    """The days of a log that hold at least one Parquet file, oldest first.

    Raises:
        InputError: There is no such folder.
        StorageError: Storage failed for too long.
    """
    if not is_gcs(logs_uri):
        if not local_path(logs_uri).is_dir():
            raise _no_such_log(logs_uri)
        folders = list_folders(logs_uri)
        return sorted(day for name in folders if (day := _day_of(name)) and _parquet_files(join(logs_uri, name)))
    # One listing of all days costs less than one a day.
    found = list_stored(logs_uri, is_recursive=True)
    if not found:
        raise _no_such_log(logs_uri)
    parts = [file.name.split("/") for file in found]
    days = {_day_of(names[0]) for names in parts if len(names) == 2 and _is_data(names[1])}
    return sorted(day for day in days if day)


def _no_such_log(logs_uri: str) -> InputError:
    return InputError(f"{logs_uri}: no such folder; logs lie in <logs.uri>/dt=YYYY-MM-DD/*.parquet")


def _day_of(name: str) -> date | None:
    match = _DAY_FOLDER.fullmatch(name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def _is_data(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith((".", "_"))


def _parquet_files(folder: str) -> list[Stored]:
    return [file for file in list_stored(folder) if _is_data(file.name)]


def find_files(logs_uri: str, day: date) -> list[Stored]:
    """As `stat_files`; of a day that is not there, none."""
    return _parquet_files(day_folder(logs_uri, day))


def stat_files(logs_uri: str, day: date) -> list[Stored]:
    """The Parquet files of one day, by name, with size and version; nothing is read.

    Raises:
        InputError: There is none; the line says which is the newest day that there is.
        StorageError: Storage failed for too long.
    """
    files = find_files(logs_uri, day)
    if not files:
        days = list_days(logs_uri)
        known = f"the newest day there is {days[-1]}" if days else "it holds no day at all"
        raise InputError(
            f"{logs_uri}: no logs for {day} (dt={day}/*.parquet); {known}; add that day or choose another date"
        )
    return files


def fingerprint(uri: str | Path) -> Fingerprint:
    """What a file is now: a local one is read once for it, one in ``gs://`` is only looked at.

    Raises:
        InputError: The file cannot be read.
        StorageError: Storage failed for too long.
    """
    text = str(uri)
    if is_gcs(text):
        found = stat(text)
        return Fingerprint(name=found.name, num_bytes=found.num_bytes, digest=found.version)
    with explained(text, "read"), local_path(text).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return Fingerprint(name=name_of(text), num_bytes=stream.tell(), digest=digest.hexdigest())
