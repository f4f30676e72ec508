import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.windows.logs import columns_of, table_of
from trainer.errors import InputError
from trainer.windows.preparing.buckets import Buckets, Ranges

TABLE = table_of(columns_of())
WORDS = st.lists(st.integers(0, 2**64 - 1), min_size=1)


@settings(deadline=None)
@given(WORDS, st.integers(1, 7), st.integers(1, 300))
def test_ranges_share_out_every_word_and_follow_their_order(
    words: list[int], num_shards: int, num_buckets: int
) -> None:
    sorted_N = np.sort(np.array(words, np.uint64))
    shards = [Ranges(shard=shard, num_shards=num_shards, num_buckets=num_buckets) for shard in range(num_shards)]
    owners = np.stack([shard.is_ours(sorted_N) for shard in shards])
    assert (owners.sum(axis=0) == 1).all()
    owner_N = owners.argmax(axis=0)
    bucket_N = np.array([shards[owner].bucket_of(sorted_N[n : n + 1])[0] for n, owner in enumerate(owner_N)])
    place_N = owner_N * num_buckets + bucket_N
    assert (np.diff(place_N) >= 0).all()
    # A range is a share of all words, however many others there are.
    whole = Ranges(shard=0, num_shards=1, num_buckets=num_shards)
    assert (whole.bucket_of(sorted_N) == owner_N).all()


@pytest.mark.parametrize("num_buckets", [1, 2, 5])
def test_rows_come_back_by_bucket_in_the_order_of_their_places(num_buckets: int) -> None:
    bucket_N = np.random.default_rng(0).integers(0, num_buckets, 24)
    pieces = [(start, np.arange(start, min(start + 5, 24))) for start in range(0, 24, 5)]
    with Buckets(num_buckets, TABLE.schema) as buckets:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda p: buckets.add((0, p[0]), TABLE, p[1], bucket_N[p[1]]), reversed(pieces)))
        assert buckets.num_rows == np.bincount(bucket_N, minlength=num_buckets).tolist()
        for bucket in range(num_buckets):
            assert buckets.read(bucket).equals(TABLE.take(np.flatnonzero(bucket_N == bucket)))


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Buckets(2, TABLE.schema) as buckets:
        buckets.add((0,), TABLE, np.arange(24), np.arange(24) % 2)
        assert os.listdir(tmp_path) == []  # a file without a name ends with its process, even a killed one


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Buckets(2, TABLE.schema) as buckets:
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(InputError, match=r"No space left on device\); free the space or set TMPDIR"):
            buckets.add((0,), TABLE, np.arange(24), np.arange(24) % 2)


def test_no_place_for_a_temporary_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"nowhere: cannot hold the rows of a day \(No such file or directory\)"):
        Buckets(2, TABLE.schema)
