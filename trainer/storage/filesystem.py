"""What lies in a folder, local or in ``gs://``, and Parquet files opened for reading."""

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyarrow import fs

from trainer.storage import gcs
from trainer.storage.errors import explained
from trainer.storage.uris import bucket_and_key, is_gcs, join, local_path, name_of

if TYPE_CHECKING:
    from google.cloud.storage import Blob


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What a file is, told without reading it.

    Attributes:
        name: Its name, relative to the folder that was listed.
        num_bytes: Its size.
        version: Changes whenever its content does: generation and checksum in ``gs://``, inode and times locally.
        modified_s: When it was last written, seconds since 1970.
    """

    name: str
    num_bytes: int
    version: str
    modified_s: float


def filesystem_of(uri: str) -> tuple[fs.FileSystem, str]:
    """Arrow's file system that holds `uri`, and the path inside it.

    Raises:
        InputError: `uri` has another scheme than ``gs://``.
    """
    if not is_gcs(uri):
        return fs.LocalFileSystem(), str(local_path(uri))
    return gcs.filesystem(), "/".join(bucket_and_key(uri)).rstrip("/")


@contextmanager
def open_parquet(uri: str | Path, *, memory_map: bool = False) -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file whose pages are held against their checksums; reads ahead what is far.

    Args:
        uri: The file.
        memory_map: Whether a local file is mapped rather than read.

    Raises:
        InputError: It cannot be read; told so of whatever the block reads too.
        StorageError: Storage failed for too long.
        OSError, pyarrow.ArrowException: Its content is no Parquet.
    """
    with explained(uri, "read"), _parquet_file(str(uri), memory_map) as file:
        yield file


def _parquet_file(uri: str, memory_map: bool) -> pq.ParquetFile:
    if not is_gcs(uri):
        return pq.ParquetFile(local_path(uri), memory_map=memory_map, page_checksum_verification=True)
    system, path = filesystem_of(uri)
    return pq.ParquetFile(path, filesystem=system, pre_buffer=True, page_checksum_verification=True)


def exists(uri: str | Path) -> bool:
    """Whether there is a file `uri`.

    Raises:
        InputError: It may not be looked at.
        StorageError: Storage failed for too long.
    """
    text = str(uri)
    if not is_gcs(text):
        return local_path(text).is_file()
    with explained(text, "read"):
        return gcs.find(text) is not None


def stat(uri: str | Path) -> Stored:
    """What the file `uri` is now; compare `version` to know whether it is still what it was.

    Raises:
        InputError: There is no such file.
        StorageError: Storage failed for too long.
    """
    text = str(uri)
    with explained(text, "read"):
        if not is_gcs(text):
            return _local(local_path(text), name_of(text))
        found = gcs.find(text)
        if found is None:
            raise FileNotFoundError(text)
        return _remote(found, name_of(text))


def list_stored(folder: str, *, is_recursive: bool = False) -> list[Stored]:
    """The files in a folder, by name; of a folder that is not there, none.

    Args:
        folder: Local or in ``gs://``.
        is_recursive: Whether files of folders within count too; their names hold the folders then.

    Raises:
        InputError: The folder may not be looked at.
        StorageError: Storage failed for too long.
    """
    with explained(folder, "read"):
        if is_gcs(folder):
            start = len(bucket_and_key(folder)[1])
            found = gcs.objects(folder, is_recursive=is_recursive)
            named = [(blob.name[start:].lstrip("/"), blob) for blob in found]
            files = [_remote(blob, name) for name, blob in named if name and not name.endswith("/")]
        else:
            files = list(_local_files(local_path(folder), is_recursive))
    return sorted(files, key=lambda file: file.name)


def list_names(folder: str) -> list[str]:
    """The names of the files and folders in a folder; of a folder that is not there, none.

    Raises:
        InputError: The folder may not be looked at.
        StorageError: Storage failed for too long.
    """
    if is_gcs(folder):
        with explained(folder, "read"):
            folders = gcs.subfolders(folder)
        return sorted({*folders, *(file.name for file in list_stored(folder))})
    path = local_path(folder)
    with explained(folder, "read"):
        return sorted(os.listdir(path)) if path.is_dir() else []


def list_folders(folder: str) -> list[str]:
    """The names of the folders in a folder; of a folder that is not there, none."""
    if is_gcs(folder):
        with explained(folder, "read"):
            return gcs.subfolders(folder)
    return [name for name in list_names(folder) if Path(join(folder, name)).is_dir()]


def _local_files(folder: Path, is_recursive: bool) -> Iterator[Stored]:
    if not folder.is_dir():
        return
    for parent, folders, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                yield _local(path, str(path.relative_to(folder)))
            except FileNotFoundError:  # gone since it was listed: another process works here
                continue
        if not is_recursive:
            folders.clear()


def _local(path: Path, name: str) -> Stored:
    found = path.stat()
    # The change time too: a clock or a copy may set the other one back, never this one.
    version = f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"
    return Stored(name=name, num_bytes=found.st_size, version=version, modified_s=max(found.st_mtime, found.st_ctime))


def _remote(blob: "Blob", name: str) -> Stored:
    checksum = base64.b64decode(blob.crc32c or "").hex()
    modified: Any = blob.updated
    return Stored(
        name=name,
        num_bytes=int(blob.size or 0),
        version=f"{blob.generation}-crc32c-{checksum}",
        modified_s=modified.timestamp() if modified is not None else 0.0,
    )
