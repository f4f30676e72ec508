"""What many tests share: a tiny synthetic log and the command as a process."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

from tests import gcs
from trainer.windows.sources.synthetic import SyntheticConfig, synthesize

# Before anything loads torch: on tiny tensors a second thread only waits, and it takes a core from another worker.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts this in the background has it ignore interrupts, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Thawline = Callable[..., "subprocess.CompletedProcess[str]"]

REPOSITORY = Path(__file__).parents[1]
TINY = SyntheticConfig(
    first_day=date(2024, 1, 1),
    num_days=9,
    num_users=60,
    num_pins=200,
    num_fresh_pins=2,
    rows_per_day=600,
    with_images=False,
    with_text=False,
)


@pytest.fixture(scope="session")
def tiny_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine days, 2024-01-01 to 2024-01-09, of 600 impressions each; read it, do not change it."""
    folder = tmp_path_factory.mktemp("tiny") / "log"
    synthesize(TINY, str(folder))
    return folder


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[str]:
    """The URL of a fake-gcs-server."""
    with gcs.serving() as url:
        yield url


@pytest.fixture
def bucket(gcs_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a new bucket, on a server that all of Google's clients find."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server)
    monkeypatch.setenv("THAWLINE_STORAGE_RETRY_S", "10")
    return gcs.make_bucket(gcs_server, f"bucket-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def thawline() -> Thawline:
    """Runs `thawline` with arguments in a process of its own, in an environment with nothing of ours in it."""

    def run(*arguments: str | Path, timeout_s: float = 300.0) -> "subprocess.CompletedProcess[str]":
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "THAWLINE_"))}
        command = [sys.executable, "-m", "pipelines.cli", *map(str, arguments)]
        return subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    return run
