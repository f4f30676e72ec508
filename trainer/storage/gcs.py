"""Google Cloud Storage below the seam: connections, budgets, and objects with preconditions.

Everything is tried again for `retry_s` seconds and no longer. ``STORAGE_EMULATOR_HOST`` names another server, as for
all of Google's clients; only there is nobody asked who we are.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from http.client import NOT_FOUND
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyarrow import fs

from trainer.errors import InputError
from trainer.storage.uris import bucket_and_key

if TYPE_CHECKING:  # a second of imports that only who uses a bucket should pay
    from google.cloud.storage import Blob, Client

RETRY_VARIABLE = "THAWLINE_STORAGE_RETRY_S"
"""Names how long a call to storage is tried again before it has failed, in seconds."""

CHUNK_BYTES = 8 * 1024**2
"""What is written at a time; more than this of an object is never held."""

_RETRY_S = 60.0
_CONNECT_S = 5.0
_ANSWER_S = 20.0
_FIELDS = "items(name,size,generation,crc32c,updated),nextPageToken"


def retry_s() -> float:
    """How long a call is tried again.

    Raises:
        InputError: The variable holds no positive number.
    """
    text = os.environ.get(RETRY_VARIABLE, str(_RETRY_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise InputError(f"{RETRY_VARIABLE}='{text}': not a number of seconds; write it as 60")
    return seconds


def emulator() -> str | None:
    """The URL of the server that stands in for Google's."""
    host = os.environ.get("STORAGE_EMULATOR_HOST")
    return (host if "://" in host else f"http://{host}") if host else None


def filesystem() -> fs.GcsFileSystem:
    """Arrow's view of all buckets."""
    return _filesystem(emulator(), retry_s(), os.getpid())


@lru_cache(maxsize=4)
def _filesystem(server: str | None, limit_s: float, pid: int) -> fs.GcsFileSystem:
    limit = timedelta(seconds=limit_s)
    if server is None:
        return fs.GcsFileSystem(retry_time_limit=limit)
    address = urlsplit(server)
    return fs.GcsFileSystem(
        anonymous=True, scheme=address.scheme, endpoint_override=address.netloc, retry_time_limit=limit
    )


def client() -> "Client":
    """Google's own client, for what needs preconditions or metadata.

    Raises:
        google.auth.exceptions.DefaultCredentialsError: Nobody says who we are.
    """
    return _client(emulator(), os.getpid())


@lru_cache(maxsize=4)
def _client(server: str | None, pid: int) -> "Client":
    from google.cloud.storage import Client

    return Client(client_options={"api_endpoint": server} if server else None)


def budget(limit_s: float | None = None, *, answer_s: float = _ANSWER_S) -> dict[str, Any]:
    """How patient a call of the client is: its ``timeout`` and ``retry``.

    Args:
        limit_s: How long it is tried again; `retry_s` when None.
        answer_s: How long one try may stay silent.
    """
    from google.cloud.storage.retry import DEFAULT_RETRY

    retry = DEFAULT_RETRY.with_delay(initial=0.2, maximum=8.0, multiplier=2.0)
    return {"timeout": (_CONNECT_S, answer_s), "retry": retry.with_timeout(retry_s() if limit_s is None else limit_s)}


def blob(uri: str) -> "Blob":
    """The object of that name, whether there or not; nothing is asked."""
    bucket, key = bucket_and_key(uri)
    return client().bucket(bucket).blob(key, chunk_size=CHUNK_BYTES)


def find(uri: str) -> "Blob | None":
    """The object with its metadata, or None."""
    bucket, key = bucket_and_key(uri)
    return client().bucket(bucket).get_blob(key, **budget())


def objects(folder: str, *, is_recursive: bool) -> Iterator["Blob"]:
    """The objects in a folder, by name; nothing of their content is read."""
    bucket, key = bucket_and_key(folder)
    return iter(
        client().list_blobs(
            bucket,
            prefix=f"{key}/" if key else None,
            delimiter=None if is_recursive else "/",
            fields=_FIELDS,
            **budget(),
        )
    )


def subfolders(folder: str) -> list[str]:
    """The names of the folders in a folder."""
    bucket, key = bucket_and_key(folder)
    fields = "prefixes,nextPageToken"
    found = client().list_blobs(bucket, prefix=f"{key}/" if key else None, delimiter="/", fields=fields, **budget())
    for _ in found:  # prefixes are there once the pages were read
        pass
    return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found.prefixes)


def upload(uri: str, content: bytes, *, only_if_absent: bool) -> bool:
    """Writes a small object whole.

    Returns:
        Whether it holds `content` now. An upload whose answer was lost is tried again and then finds itself there.
    """
    from google.api_core.exceptions import PreconditionFailed

    target = blob(uri)
    try:
        target.upload_from_string(
            content, content_type="application/json", if_generation_match=0 if only_if_absent else None, **budget()
        )
    except PreconditionFailed:
        return download(uri) == content
    return True


def fetch(uri: str, target: Path) -> None:
    """Copies an object to a local file, its checksum compared."""
    blob(uri).download_to_filename(str(target), **budget())


def download(uri: str) -> bytes:
    """A small object's content, its checksum compared."""
    content: bytes = blob(uri).download_as_bytes(**budget())
    return content


def remove(uri: str) -> None:
    """Deletes an object; one that is not there is no fault."""
    from google.api_core.exceptions import NotFound

    with suppress(NotFound):
        blob(uri).delete(**budget())


class Upload:
    """Writes a large object part by part; it is there, whole, once `finish` returns, and never before."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        # Arrow's own stream cannot be given up: closed or dropped, it publishes what it was given so far.
        self.stream = blob(uri).open("wb", chunk_size=CHUNK_BYTES, ignore_flush=True, **budget())

    def finish(self) -> None:
        """Publishes the object."""
        from google.cloud.storage.exceptions import InvalidResponse

        num_bytes = self.stream.tell()
        try:
            self.stream.close()
        except InvalidResponse as error:
            # The last answer was lost, and storage forgets an upload once it is done: then the object is there.
            done = find(self._uri) if error.response.status_code == NOT_FOUND else None
            if done is None or done.size != num_bytes:
                raise
            self.give_up()

    def give_up(self) -> None:
        """Drops what was written: an upload that is not finished is nothing, and storage forgets it."""
        # Not `terminate`: where storage does not answer it fails, and the stream's end would then publish a part.
        self.stream._buffer.close()
