"""Files written so that they appear whole or not at all, local or in ``gs://``.

Locally a file is written under a hidden name beside its target and moved there in one step; in ``gs://`` an object is
there once its upload ends. What is published once stays: whoever comes second is told so.
"""

import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trainer.errors import InputError
from trainer.storage import gcs
from trainer.storage.errors import explained
from trainer.storage.uris import is_gcs, local_path

ROW_GROUP_ROWS = 65_536
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def file_aside(target: Path) -> Iterator[Path]:
    """Yields a hidden path beside `target` to write to; moves it onto `target` when the block ends well.

    When the block fails, `target` is what it was and nothing else stays.

    Raises:
        InputError: The folder cannot be written to.
    """
    with _aside(target, os.replace) as aside:
        yield aside


@contextmanager
def folder_aside(target: Path) -> Iterator[Path]:
    """Yields an empty hidden folder beside `target` to fill; renames it to `target` when the block ends well.

    `target` is content-addressed: when another process published it first, that one stays and ours is dropped. When the
    block fails, nothing stays.

    Raises:
        InputError: The folder cannot be written to.
    """
    aside = _hidden(target)
    with explained(target, "written"):
        try:
            aside.mkdir(parents=True)
            yield aside
            _rename_unless_there(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _aside(target: Path, publish: Callable[[Path, Path], None]) -> Iterator[Path]:
    aside = _hidden(target)
    with explained(target, "written"):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            yield aside
            publish(aside, target)
        finally:
            with suppress(OSError):
                aside.unlink()


def _rename_unless_there(aside: Path, target: Path) -> None:
    try:
        os.rename(aside, target)
    except OSError:
        if not target.is_dir():
            raise


def _hidden(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.aside")


def write_json(target: str | Path, content: Mapping[str, Any]) -> None:
    """Publishes `content` at `target` as indented JSON with sorted keys, replacing what is there.

    Raises:
        InputError: The folder cannot be written to.
        StorageError: Storage failed for too long.
    """
    if is_gcs(str(target)):
        with explained(target, "written"):
            gcs.upload(str(target), _json(content), only_if_absent=False)
        return
    with file_aside(local_path(str(target))) as aside:
        aside.write_bytes(_json(content))


def publish_once(target: str | Path, content: Mapping[str, Any]) -> bool:
    """Publishes `content` at `target` as JSON unless something is there.

    Returns:
        Whether `content` is what is there now; when not, another was first, and stays.

    Raises:
        InputError: The folder cannot be written to.
        StorageError: Storage failed for too long.
    """
    if is_gcs(str(target)):
        with explained(target, "written"):
            return gcs.upload(str(target), _json(content), only_if_absent=True)
    path = local_path(str(target))
    outcome: list[bool] = []
    with _aside(path, lambda aside, there: outcome.append(_link(aside, there))) as aside:
        aside.write_bytes(_json(content))
        _sync(aside)
    return outcome[0] or path.read_bytes() == _json(content)


def _link(aside: Path, target: Path) -> bool:
    """Gives a file its second name, unless something has it; returns whether it has."""
    try:
        os.link(aside, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # No links here (some mounted buckets and shares): of two at once the last one's stays, whole too.
        if target.exists():
            return False
        os.replace(aside, target)
    return True


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def read_text(source: str | Path) -> str:
    """The content of a small text file.

    Raises:
        InputError: There is no such file.
        StorageError: Storage failed for too long.
    """
    return _read(str(source), "name a file that can be read").decode()


def _read(source: str, remedy: str) -> bytes:
    with explained(source, "read", remedy):
        return gcs.download(source) if is_gcs(source) else local_path(source).read_bytes()


def read_json(source: str | Path, remedy: str) -> Any:
    """The content of a JSON file.

    Args:
        source: The file.
        remedy: What to do when it cannot be read.

    Raises:
        InputError: There is no such file, or it is not JSON.
        StorageError: Storage failed for too long.
    """
    try:
        return json.loads(_read(str(source), remedy))
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise InputError(f"{source}: cannot be read (not JSON); {remedy}") from None


def fetch(uri: str, target: Path) -> None:
    """Copies a file of ``gs://`` to a new local one, its checksum compared.

    Raises:
        InputError: There is no such file, or it may not be read.
        StorageError: Storage failed for too long.
    """
    with explained(uri, "read"):
        gcs.fetch(uri, target)


def delete(uri: str | Path) -> None:
    """Removes a file; one that is not there is no fault.

    Raises:
        InputError: It may not be removed.
        StorageError: Storage failed for too long.
    """
    with explained(uri, "removed"):
        if is_gcs(str(uri)):
            gcs.remove(str(uri))
        else:
            local_path(str(uri)).unlink(missing_ok=True)


def remove_empty_folders(folder: str, *, within: str) -> None:
    """Removes a local folder that is empty, and those above it that are empty then; ``gs://`` has no folders.

    Args:
        folder: Where to start.
        within: This one stays.
    """
    if is_gcs(folder):
        return
    path, top = local_path(folder), local_path(within)
    while path != top and path.is_relative_to(top):
        try:
            path.rmdir()
        except OSError:
            return
        path = path.parent


@contextmanager
def parquet_writer(
    uri: str | Path, schema: pa.Schema, *, encodings: Mapping[str, str] | None = None
) -> Iterator[pq.ParquetWriter]:
    """Yields a writer of a new file the way all Parquet here is written: zstd, page checksums.

    When the block fails, nothing stays; a file of a killed process may stay in part, under a name that nobody reads
    before it is published.

    Args:
        uri: The file; its folder is made when missing.
        schema: Of what will be written.
        encodings: Of columns that are written without dictionary and statistics, by their path in Parquet.

    Raises:
        InputError: The folder cannot be written to.
        StorageError: Storage failed for too long.
    """
    write = _remote_writer if is_gcs(str(uri)) else _local_writer
    with explained(uri, "written"), write(str(uri), schema, encodings or {}) as writer:
        yield writer


@contextmanager
def _local_writer(uri: str, schema: pa.Schema, encodings: Mapping[str, str]) -> Iterator[pq.ParquetWriter]:
    path = local_path(uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _writer(path, schema, encodings) as writer:
            yield writer
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


@contextmanager
def _remote_writer(uri: str, schema: pa.Schema, encodings: Mapping[str, str]) -> Iterator[pq.ParquetWriter]:
    upload = gcs.Upload(uri)
    try:
        with _writer(upload.stream, schema, encodings) as writer:
            yield writer
        upload.finish()
    except BaseException:
        upload.give_up()
        raise


def _writer(sink: Any, schema: pa.Schema, encodings: Mapping[str, str]) -> pq.ParquetWriter:
    options: dict[str, Any] = {}
    if encodings:
        others = [path for path in map(leaf_path, schema) if path not in encodings]
        options = {"column_encoding": dict(encodings), "use_dictionary": others, "write_statistics": others}
    return pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True, **options)


def leaf_path(field: pa.Field) -> str:
    """How Parquet names a column, or the values in a column of lists."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name


def write_parquet(uri: str | Path, table: pa.Table) -> None:
    """Writes `table` as a new file, see `parquet_writer`, in row groups of 65,536 rows."""
    with parquet_writer(uri, table.schema) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
