"""A whole retrain from a bucket into a bucket, through a proxy that breaks a tenth of all requests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import gcs
from tests.faults import ledger
from tests.faults.proxy import Weather, proxied
from tests.pipelines.test_retrain import SETTINGS
from trainer.storage.filesystem import list_names
from trainer.storage.publishing import read_json
from trainer.storage.uris import join

pytestmark = pytest.mark.faults

REPOSITORY = Path(__file__).parents[2]


def run(verb: str, *arguments: str, server: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "THAWLINE_"))}
    environment |= {"STORAGE_EMULATOR_HOST": server, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "pipelines.cli", *verb.split(), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_days_and_windows_lie_in_the_bucket_and_records_here(
    gcs_server: str, bucket: str, tiny_log: Path, tmp_path: Path
) -> None:
    store = join(bucket, "store")
    gcs.upload(tiny_log, join(bucket, "log"))
    options = [f"--set={setting}" for setting in (f"logs.uri={bucket}/log", *SETTINGS)]
    options += ["--recipe", "synthetic", "--date", "2024-01-09", "--store", store, "--json"]
    with proxied(gcs_server, Weather(seed=61, rate=0.1)) as storm:
        done = run("retrain", *options, server=storm.url, folder=tmp_path)
        ledger.injected.update(storm.injected)
    ledger.seeds.append(61)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["window"]["days"], summary["version"]) == (3, "1")
    assert len(list_names(join(store, "partitions"))) == 7
    digests = [name.removesuffix(".json") for name in list_names(join(store, "windows"))]
    assert len(digests) == 2
    assert all(read_json(join(store, "windows", f"{digest}.json"), "look")["digest"] == digest for digest in digests)
    records = tmp_path / ".thawline" / "gs" / bucket.removeprefix("gs://") / "store"
    assert sorted(path.name for path in records.iterdir()) == ["mlartifacts", "mlflow.db", "runs"]
    kept = run("data gc", "--store", store, "--grace-days", "0", "--json", server=gcs_server, folder=tmp_path)
    assert json.loads(kept.stdout)["garbage"] == [], "the models and their backbone name them"
