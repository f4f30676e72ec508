"""A look at storage before work starts: whether it is there, lets us in, and may be written to; told within seconds."""

import os
import uuid
from contextlib import suppress
from pathlib import Path

from trainer.errors import InputError
from trainer.storage import gcs
from trainer.storage.errors import explained, os_reason
from trainer.storage.uris import bucket_and_key, is_gcs, join, local_path

PATIENCE_S = 8.0
"""How long a bucket may not answer. Work that is under way waits for longer, see `trainer.storage.gcs.retry_s`."""

_PROBE_BYTES = 4096


def preflight(uri: str, *, writable: bool) -> None:
    """Looks whether a folder can be used.

    A local one is listed, or a few kilobytes are written to it or to the folder that it will be made in. Of one in
    ``gs://`` a page is listed, and a small object is written and removed. Nothing stays.

    Args:
        uri: Local folder or ``gs://BUCKET/FOLDER``.
        writable: Whether it will be written to; otherwise a local one must be there.

    Raises:
        InputError: There is no such bucket or folder, nobody says who we are, we may not, or the disk is full.
        StorageError: Storage did not answer.
    """
    if is_gcs(uri):
        _look_at_bucket(uri, writable)
    elif writable:
        _write_a_probe(uri)
    elif not os.access(local_path(uri), os.R_OK | os.X_OK):
        state = "cannot be read; make it readable" if local_path(uri).is_dir() else "no such folder; name one that is"
        raise InputError(f"{uri}: {state}, or name another")


def _write_a_probe(uri: str) -> None:
    target = local_path(uri).absolute()
    folder = next(path for path in (target, *target.parents) if path.exists())
    probe = Path(folder, f".{uuid.uuid4().hex}.probe")
    try:
        probe.write_bytes(bytes(_PROBE_BYTES))
    except OSError as error:
        where = "" if folder == target else f" in {folder}"
        raise InputError(
            f"{uri}: cannot be written{where} ({os_reason(error)}); free the space, make it writable or name another"
        ) from None
    finally:
        with suppress(OSError):
            probe.unlink()


def _look_at_bucket(uri: str, writable: bool) -> None:
    from google.auth.exceptions import DefaultCredentialsError

    bucket, key = bucket_and_key(uri)
    patience = gcs.budget(PATIENCE_S, answer_s=PATIENCE_S / 2)
    try:
        with explained(uri, "read"):
            found = gcs.client().list_blobs(bucket, prefix=f"{key}/" if key else None, max_results=1, **patience)
            next(iter(found), None)
    except InputError as error:
        # Its subclasses are of credentials that are there.
        if type(error.__cause__) is DefaultCredentialsError:
            raise InputError(
                f"{uri}: nobody says who asks for it; run `gcloud auth application-default login`, set "
                "GOOGLE_APPLICATION_CREDENTIALS, or give this pod's account an identity"
            ) from None
        raise
    if writable:
        probe = join(uri, f".{uuid.uuid4().hex}.probe")
        with explained(uri, "written"):
            gcs.blob(probe).upload_from_string(b"", if_generation_match=0, **patience)
            gcs.blob(probe).delete(**patience)
