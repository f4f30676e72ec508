"""A rank that fails in a batch ends the run: it names the batch, and no process hangs."""

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

WANTED = {
    "network": ("the loss is no number", "in step 3 of epoch 1 (steps are counted from 0)"),
    "lookup": ("an id is no number", "in the lookup of batch 3 of this pass (counted from 0)"),
    "reader": ("a row is no number", "while batch 3 of this pass was read (counted from 0)"),
}


@pytest.mark.parametrize("where", WANTED)
def test_a_failing_rank_ends_the_run_and_names_the_batch(where: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "tests.trainer.semisync.failing", where]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # Gloo itself would wait for half an hour.
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode != 0
    for text in WANTED[where]:
        assert text in ended.stderr
