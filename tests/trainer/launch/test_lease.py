import threading
from pathlib import Path

from trainer.launch import lease

SOON_S = 0.2
LOOK_S = 0.01


def watched(folder: Path, *, lost_after_s: float = SOON_S) -> threading.Event:
    lost = threading.Event()
    lease.watch(folder, on_lost=lost.set, lost_after_s=lost_after_s, look_every_s=LOOK_S)
    return lost


def test_a_lease_that_is_not_renewed_is_lost(tmp_path: Path) -> None:
    lease.renew(tmp_path)
    assert watched(tmp_path).wait(timeout=30)


def test_a_lease_that_goes_with_its_folder_is_lost(tmp_path: Path) -> None:
    lease.renew(tmp_path)
    lost = watched(tmp_path)
    (tmp_path / "followed").unlink()
    assert lost.wait(timeout=30)


def test_each_renewal_counts_again(tmp_path: Path) -> None:
    lease.renew(tmp_path)
    long_s = 60.0
    lost = watched(tmp_path, lost_after_s=long_s)
    for _ in range(20):
        lease.renew(tmp_path)
        assert not lost.wait(timeout=SOON_S / 10)


def test_without_a_lease_nothing_is_watched(tmp_path: Path) -> None:
    before = threading.active_count()
    lost = watched(tmp_path)
    assert threading.active_count() == before
    assert not lost.is_set()
