"""The one place where windows touch files: listing days, fingerprinting inputs, writing aside and publishing.

Everything that is published appears whole or not at all: it is written under a hidden name beside its target and moved
there by one rename.
"""

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trainer.errors import InputError

ROW_GROUP_ROWS = 65_536
_DAY_FOLDER = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")
_URI_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def local_path(uri: str) -> Path:
    """The local path that `uri` names.

    Raises:
        InputError: `uri` has a scheme, such as ``gs://``; only local folders are supported.
    """
    scheme = _URI_SCHEME.match(uri)
    if scheme:
        raise InputError(
            f"{uri}: {scheme[1]}:// storage is not supported; copy the data to a local folder and name that"
        )
    return Path(uri)


@contextmanager
def file_aside(target: Path) -> Iterator[Path]:
    """Yields a hidden path beside `target` to write to; moves it onto `target` when the block ends well.

    When the block fails, `target` is what it was and nothing else stays.

    Raises:
        InputError: The folder cannot be written to.
    """
    aside = _aside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        os.replace(aside, target)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        with suppress(OSError):
            aside.unlink()


@contextmanager
def folder_aside(target: Path) -> Iterator[Path]:
    """Yields an empty hidden folder beside `target` to fill; renames it to `target` when the block ends well.

    `target` is content-addressed: when another process published it first, that one stays and ours is dropped. When the
    block fails, nothing stays.

    Raises:
        InputError: The folder cannot be written to.
    """
    aside = _aside(target)
    try:
        aside.mkdir(parents=True)
        yield aside
        _rename_unless_there(aside, target)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _rename_unless_there(aside: Path, target: Path) -> None:
    try:
        os.rename(aside, target)
    except OSError:
        if not target.is_dir():
            raise


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.aside")


def _unwritable(target: Path, error: OSError) -> InputError:
    return InputError(
        f"{target}: cannot be written ({error.strerror or error}); free the space or choose another folder"
    )


def write_json(target: Path, content: dict[str, Any]) -> None:
    """Publishes `content` at `target` as indented JSON with sorted keys."""
    with file_aside(target) as aside:
        aside.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def write_day(out: str, day: date, table: pa.Table) -> None:
    """Publishes one day of a log as ``<out>/dt=YYYY-MM-DD/part-00000.parquet``, replacing it if it is there.

    Args:
        out: Folder of the log; made when missing.
        day: UTC day that every ``ts`` of `table` falls on.
        table: Rows in the log contract, see `trainer.windows.contract.arrow_schema`.

    Raises:
        InputError: `out` is not a local folder or cannot be written to.
    """
    with file_aside(day_folder(out, day) / "part-00000.parquet") as aside:
        write_parquet(aside, table)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Writes `table` the way all Parquet here is written: zstd, page checksums, row groups of 65,536 rows."""
    pq.write_table(table, path, compression="zstd", row_group_size=ROW_GROUP_ROWS, write_page_checksum=True)


def day_folder(logs_uri: str, day: date) -> Path:
    """``<logs_uri>/dt=YYYY-MM-DD``."""
    return local_path(logs_uri) / f"dt={day.isoformat()}"


def list_days(logs_uri: str) -> list[date]:
    """The days of a log that hold at least one Parquet file, oldest first.

    Raises:
        InputError: `logs_uri` is not a local folder.
    """
    root = local_path(logs_uri)
    if not root.is_dir():
        raise InputError(f"{logs_uri}: no such folder; logs lie in <logs.uri>/dt=YYYY-MM-DD/*.parquet")
    return sorted(day for folder in root.iterdir() if (day := _day_of(folder)) and _parquet_files(folder))


def _day_of(folder: Path) -> date | None:
    match = _DAY_FOLDER.fullmatch(folder.name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def _parquet_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))


def list_files(logs_uri: str, day: date) -> list[Path]:
    """The Parquet files of one day, by name.

    Raises:
        InputError: There is none; the line says which is the newest day that there is.
    """
    files = _parquet_files(day_folder(logs_uri, day))
    if not files:
        days = list_days(logs_uri)
        known = f"the newest day there is {days[-1]}" if days else "it holds no day at all"
        raise InputError(
            f"{logs_uri}: no logs for {day} (dt={day}/*.parquet); {known}; add that day or choose another date"
        )
    return files


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What one input file was when it was read: name, size and SHA-256 of its content (hex)."""

    name: str
    num_bytes: int
    sha256: str


def fingerprint(path: Path) -> Fingerprint:
    """Reads `path` once and says what it is.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
            return Fingerprint(name=path.name, num_bytes=stream.tell(), sha256=digest.hexdigest())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); make it readable or remove it"
        ) from error
