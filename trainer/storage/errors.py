"""What storage answers when it does not do as asked, told in one line."""

import errno
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from trainer.errors import InputError
from trainer.storage.uris import is_gcs

Action = Literal["read", "written", "removed"]

_CLOUD_STATUS = re.compile(r"google::cloud::Status\((\w+): (.*)", re.DOTALL)
_MISTAKES = {
    "NOT_FOUND": "name a bucket and an object that exist",
    "PERMISSION_DENIED": "let this account read and write there",
    "UNAUTHENTICATED": "log in anew, or renew this account's key",
    "INVALID_ARGUMENT": "name a bucket and an object that can exist",
}
_CODES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
_LOCAL_REMEDIES: dict[Action, str] = {
    "read": "make it readable or remove it",
    "written": "free the space or choose another folder",
    "removed": "make its folder writable",
}
_MAX_REASON = 200


class StorageError(RuntimeError):
    """Storage failed for longer than it is tried; told in one line. It is nobody's mistake: trying later may do."""


@contextmanager
def explained(uri: str | Path, action: Action, remedy: str | None = None) -> Iterator[None]:
    """Turns what storage refuses within the block into one line; everything else passes as it is.

    Args:
        uri: What the block reads, writes or removes.
        action: Which of them.
        remedy: What the user may do about it, where more is known than that it failed.

    Raises:
        InputError: It is the user's to mend: nothing there, no permission, no space.
        StorageError: Storage failed for longer than it is tried.
    """
    started_s = time.monotonic()
    try:
        yield
    except Exception as error:
        told = _told(str(uri), action, error, remedy, time.monotonic() - started_s)
        if told is None:
            raise
        raise told from error


def _told(uri: str, action: Action, error: Exception, remedy: str | None, after_s: float) -> Exception | None:
    if not is_gcs(uri):
        return _told_locally(uri, action, error, remedy)
    code, reason = _cloud_reason(error)
    if code is None:
        return None
    if code in _MISTAKES:
        return InputError(f"{uri}: cannot be {action} ({reason}); {remedy or _MISTAKES[code]}")
    return StorageError(f"{uri}: cannot be {action} after {after_s:.0f} s ({reason}); try again later")


def _told_locally(uri: str, action: Action, error: Exception, remedy: str | None) -> InputError | None:
    # What Arrow says of a file's content is an OSError without a number.
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if action == "read" and error.errno == errno.ENOENT:
        remedy = remedy or "write it again or name another"
    return InputError(f"{uri}: cannot be {action} ({os_reason(error)}); {remedy or _LOCAL_REMEDIES[action]}")


def os_reason(error: OSError) -> str:
    """What the system says, without numbers and paths."""
    return str(error) if error.errno is None else os.strerror(error.errno)


def _cloud_reason(error: Exception) -> tuple[str | None, str]:
    """Google's name for what went wrong, and its words; None where it is no matter of storage."""
    told = _CLOUD_STATUS.search(str(error))
    if told:
        return told[1], _line(told[2].rstrip(")"))
    if isinstance(error, FileNotFoundError):
        return "NOT_FOUND", "no such object"
    if isinstance(error, PermissionError):
        return "PERMISSION_DENIED", _line(str(error))
    return _client_reason(error)


def _client_reason(error: Exception) -> tuple[str | None, str]:
    """The same for what google-cloud-storage raises."""
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.cloud.storage import exceptions as storage

    if isinstance(error, api.RetryError):
        cause = error.cause
        return "UNAVAILABLE", _line(str(cause) if cause is not None else str(error))
    if isinstance(error, storage.InvalidResponse):
        return _CODES.get(error.response.status_code, "UNAVAILABLE"), _line(str(error))
    if isinstance(error, storage.DataCorruption):
        return "DATA_LOSS", _line(str(error))
    if isinstance(error, api.GoogleAPICallError):
        return _CODES.get(error.code or 0, "UNAVAILABLE"), _line(error.message or str(error))
    # What Arrow says of a file's content is an OSError without a number.
    is_numbered = isinstance(error, OSError) and error.errno is not None
    if is_numbered or isinstance(error, auth.TransportError | requests.RequestException):
        return "UNAVAILABLE", _line(str(error))
    if isinstance(error, auth.GoogleAuthError):
        return "UNAUTHENTICATED", _line(str(error))
    return None, ""


def _line(text: str) -> str:
    return " ".join(text.split())[:_MAX_REASON].rstrip(". ")
