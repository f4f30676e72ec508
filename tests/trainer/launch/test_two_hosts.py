"""One training on two hosts: network namespaces, joined by a link, that share nothing but the disk."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.hosts import Hosts, two_hosts
from tests.trainer.launch.tiny_days import Prepared, assert_same_training
from trainer.launch.job import Job, torchrun

# Backbone and training are made once for all of these.
pytestmark = pytest.mark.xdist_group("launches")
PORT = 29_400


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with two_hosts() as found:
        if not found.link:
            pytest.skip(found.why_not)
        yield found


def start(hosts: Hosts, host: int, job: Job, path: Path) -> "subprocess.Popen[str]":
    """What a `TrainJob`'s pod runs, in the environment that Kubeflow Trainer gives it."""
    meeting = {"PET_NNODES": "2", "PET_NODE_RANK": str(host)}
    meeting |= {"PET_MASTER_ADDR": hosts.address(0), "PET_MASTER_PORT": str(PORT)}
    return subprocess.Popen(
        [*hosts.within(host), *torchrun(job, path)],
        env={**os.environ, **meeting, "GLOO_SOCKET_IFNAME": hosts.device(host), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def bytes_sent(hosts: Hosts, host: int) -> int:
    """What went over the link from a host."""
    asked = ["ip", "-json", "-statistics", "link", "show", "dev", hosts.device(host)]
    done = subprocess.run([*hosts.within(host), *asked], capture_output=True, text=True, check=True)
    sent: int = json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"]
    return sent


def test_two_hosts_train_what_one_does_over_their_link(
    hosts: Hosts, prepared: Prepared, backbone: Path, training: Path, tmp_path: Path
) -> None:
    out, path = tmp_path / "out", tmp_path / "job.json"
    recipe = prepared.two_ranks().override({"cluster.num_nodes": "2"})
    job = Job(task="train", recipe=recipe, window=prepared.window, backbone=str(backbone), out=str(out))
    job.write(path)
    before = [bytes_sent(hosts, host) for host in range(2)]
    started = [start(hosts, host, job, path) for host in range(2)]
    said = [host.communicate(timeout=300)[0] for host in started]
    assert [host.returncode for host in started] == [0, 0], "\n".join(said)
    assert_same_training(out, training)
    assert "epoch 2: loss" in said[0]
    assert "epoch" not in said[1], "rank 0 speaks"
    rows_bytes = 100_000
    assert all(bytes_sent(hosts, host) - sent > rows_bytes for host, sent in enumerate(before))


def test_a_host_that_is_lost_ends_the_training_of_the_other(
    hosts: Hosts, prepared: Prepared, backbone: Path, tmp_path: Path
) -> None:
    path = tmp_path / "job.json"
    recipe = prepared.two_ranks().override({"cluster.num_nodes": "2", "thaw.num_epochs": "10000"})
    job = Job(task="train", recipe=recipe, window=prepared.window, backbone=str(backbone), out=str(tmp_path / "out"))
    job.write(path)
    first, second = (start(hosts, host, job, path) for host in range(2))
    assert first.stdout is not None
    for line in first.stdout:
        if "epoch 1: loss" in line:
            break
    second.terminate()
    said, _ = first.communicate(timeout=300)
    second.communicate(timeout=60)
    assert first.returncode != 0
    assert "Traceback" in said
