"""Names of files and folders, local or in ``gs://``: taken apart and put together, touching neither."""

import os
import posixpath
import re
from pathlib import Path

from trainer.errors import InputError

GCS = "gs://"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def is_gcs(uri: str) -> bool:
    """Whether `uri` lies in Google Cloud Storage."""
    return uri.startswith(GCS)


def bucket_and_key(uri: str) -> tuple[str, str]:
    """The bucket of a ``gs://`` URI and the name within it, without slashes at its ends.

    Raises:
        InputError: It names no bucket.
    """
    bucket, _, key = uri.removeprefix(GCS).partition("/")
    if not bucket:
        raise InputError(f"{uri}: names no bucket; write gs://BUCKET/FOLDER")
    return bucket, key.strip("/")


def join(uri: str | Path, *names: str) -> str:
    """`uri` with `names` below it."""
    text = str(uri)
    return "/".join((text.rstrip("/"), *names)) if is_gcs(text) else str(Path(text, *names))


def name_of(uri: str) -> str:
    """The last part of `uri`."""
    return uri.rstrip("/").rpartition("/")[2]


def parent_of(uri: str) -> str:
    """The folder that holds `uri`."""
    return uri.rstrip("/").rpartition("/")[0] if is_gcs(uri) else str(Path(uri).parent)


def relative(uri: str, folder: str) -> str:
    """How `uri` is named from within `folder`, so that both may be moved together; `resolve` undoes it."""
    if not (is_gcs(uri) and is_gcs(folder)):
        return uri if is_gcs(uri) else os.path.relpath(Path(uri).resolve(), Path(folder).resolve())
    if bucket_and_key(uri)[0] != bucket_and_key(folder)[0]:
        return uri
    return posixpath.relpath(uri.removeprefix(GCS), folder.removeprefix(GCS))


def resolve(folder: str, name: str) -> str:
    """What `name` means within `folder`."""
    if is_gcs(name):
        return name
    if is_gcs(folder):
        return GCS + posixpath.normpath(posixpath.join(folder.removeprefix(GCS), name))
    return str((Path(folder) / name).resolve())


def local_path(uri: str) -> Path:
    """The local path that `uri` names.

    Raises:
        InputError: `uri` has a scheme; what is asked for is done in local folders only.
    """
    scheme = _SCHEME.match(uri)
    if scheme:
        raise InputError(f"{uri}: {scheme[1]}:// is not supported here; name a local folder")
    return Path(uri)
