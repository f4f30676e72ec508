"""Processes that are killed, race, find the disk full or may not write."""

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import ledger, work
from tests.faults.checks import check_nothing, check_same, check_told, check_whole, published
from tests.faults.conftest import DAYS, Log
from trainer.errors import InputError
from trainer.storage.filesystem import list_stored
from trainer.windows.gc import find_garbage, remove_garbage
from trainer.windows.manifest import assemble_window, load_partition
from trainer.windows.preparation import prepare_day

pytestmark = pytest.mark.faults

DAY = DAYS[0]
NUM_KILLS, MAX_TRIES = 40, 200


def life_s(log: Log, store: str) -> float:
    """How long an undisturbed child takes, from where it says that it begins."""
    ours, theirs = work.CONTEXT.Pipe()
    process = work.CONTEXT.Process(target=work.prepare, args=(log.uri, store, theirs))
    process.start()
    ours.recv()
    started_s = time.monotonic()
    assert isinstance(ours.recv(), str)
    took_s = time.monotonic() - started_s
    process.join()
    return took_s


def killed(log: Log, store: str, after_s: float) -> bool:
    """Kills a child so long after it began; whether it was still at work then."""
    ours, theirs = work.CONTEXT.Pipe()
    process = work.CONTEXT.Process(target=work.prepare, args=(log.uri, store, theirs))
    process.start()
    theirs.close()
    ours.recv()
    time.sleep(after_s)
    is_done = ours.poll()
    process.kill()
    process.join()
    return not is_done


@pytest.mark.parametrize("seed", [41])
def test_a_kill_at_any_instant_leaves_a_whole_day_or_none(
    log: Log, store: str, tmp_path: Path, dice: random.Random, seed: int
) -> None:
    whole_s = life_s(log, str(tmp_path / "measured"))
    num_kills = num_tries = 0
    while num_kills < NUM_KILLS and num_tries < MAX_TRIES:
        num_tries += 1
        num_kills += killed(log, store, dice.uniform(0, whole_s))
        if check_whole(store, DAY, log.rows[DAY]):
            shutil.rmtree(store)
    ledger.injected["kill -9"] += num_kills
    assert num_kills == NUM_KILLS
    killed(log, store, whole_s / 2)
    partition = prepare_day(log.recipe, DAY, store)
    check_same(log, DAY, partition)
    collect(store, partition)


def collect(store: str, partition: str) -> None:
    """What killed processes left is found as garbage; without it the day is as whole as before."""
    rows = load_partition(partition).num_rows
    window = assemble_window([partition], store, has_heldout=False)
    named = {Path(window).stem}
    remove_garbage(store, find_garbage(store, named, grace_s=0), named, grace_s=0)
    left = {Path(store, file.name) for file in list_stored(f"{store}/partitions", is_recursive=True)}
    assert len(left) == len(os.listdir(partition))
    assert load_partition(partition).num_rows == rows
    assert not [file.name for file in list_stored(store, is_recursive=True) if file.name.endswith(".aside")]


@pytest.mark.parametrize("seed", range(51, 57))
def test_of_many_processes_at_once_one_publishes(log: Log, store: str, dice: random.Random, seed: int) -> None:
    num_processes = dice.randint(2, 6)
    barrier = work.CONTEXT.Barrier(num_processes)
    paths = set(work.outcomes(work.prepare_together, [(log.uri, store, barrier)] * num_processes))
    ledger.injected["race"] += num_processes - 1
    assert len(paths) == 1
    (path,) = paths
    assert check_whole(store, DAY, log.rows[DAY]) == [path]
    names = {Path(file).name for file in load_partition(path).files}
    parquet = {name for name in os.listdir(path) if name.startswith("part-")}
    assert parquet == names, "who came second took its own away"


@pytest.mark.parametrize("seed", [61])
def test_a_full_disk_is_one_line_and_publishes_nothing(log: Log, store: str, dice: random.Random, seed: int) -> None:
    """A limit on a file's size stops writes as a full disk does, with another word for it, and needs no root."""
    most = max(file.num_bytes for file in list_stored(f"{Path(log.uri).parent}/store", is_recursive=True))
    for num_bytes in [0, 1, *(dice.randrange(most) for _ in range(20))]:
        told = work.outcome(work.prepare_with_files_of, num_bytes, log.uri, store)
        if isinstance(told, Exception):
            ledger.injected["full disk"] += 1
            check_told(told)
            assert isinstance(told, InputError)
            check_nothing(store, DAY)
        else:
            check_same(log, DAY, told)
            shutil.rmtree(store)
    left = [file.name for file in list_stored(store, is_recursive=True)]
    assert not left, "who could not write leaves nothing"
    check_same(log, DAY, prepare_day(log.recipe, DAY, store))


@pytest.fixture
def in_the_open(log: Log) -> Iterator[Path]:
    """A folder that other users may enter, with the log in it: pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="thawline-faults-"))
    shutil.copytree(log.uri, folder / "log")
    folder.chmod(0o755)
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("closed", ["store", "store/partitions", "store/partitions/dt"])
def test_a_folder_that_is_read_only_is_one_line(in_the_open: Path, log: Log, closed: str) -> None:
    store, folder = in_the_open / "store", in_the_open / closed.replace("dt", f"dt={DAY}")
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    told = work.outcome(work.prepare_as_nobody, str(in_the_open / "log"), str(store))
    ledger.injected["read-only"] += 1
    check_told(told)
    assert "Permission denied" in str(told)
    assert published(str(store), DAY) == []


@pytest.mark.parametrize("number", range(3))
def test_a_file_that_may_not_be_read_is_one_line(in_the_open: Path, log: Log, number: int) -> None:
    store, file = in_the_open / "store", in_the_open / "log" / f"dt={DAY}" / f"part-{number:05}.parquet"
    store.mkdir(mode=0o777)
    store.chmod(0o777)
    file.chmod(0o000)
    told = work.outcome(work.prepare_as_nobody, str(in_the_open / "log"), str(store))
    ledger.injected["unreadable"] += 1
    check_told(told)
    assert file.name in str(told)
    assert published(str(store), DAY) == []
