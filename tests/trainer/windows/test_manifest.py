import json
import shutil
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.trainer.windows.logs import DAY, recipe_for, write_log
from trainer.errors import InputError
from trainer.windows.manifest import assemble_window, backbone_days, load_window, window_days
from trainer.windows.preparation import prepare_day


def prepare(root: Path, offsets: Iterable[int]) -> list[str]:
    """Prepares days by their offset from DAY; returns their partitions."""
    days = [DAY + timedelta(days=offset) for offset in offsets]
    for day in days:
        write_log(root / "log", day)
    return [prepare_day(recipe_for(root / "log"), day, str(root / "store")) for day in days]


def test_the_days_of_a_retrain() -> None:
    assert window_days(date(2024, 3, 5), 2) == [date(2024, 3, 2), date(2024, 3, 3), date(2024, 3, 4)]
    assert backbone_days(date(2024, 3, 5), 2, 3) == [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1)]


def test_a_window_comes_back_as_it_was_assembled(tmp_path: Path) -> None:
    partitions = prepare(tmp_path, [2, 0, 1])
    path = assemble_window(partitions, str(tmp_path / "store"), has_heldout=True)
    window = load_window(path)
    assert Path(path) == tmp_path / "store" / "windows" / f"{window.digest}.json"
    assert [partition.day for partition in window.days] == [DAY, DAY + timedelta(days=1)]
    assert (window.first_day, window.last_day, window.num_rows) == (DAY, DAY + timedelta(days=1), 48)
    assert window.heldout is not None
    assert window.heldout.day == DAY + timedelta(days=2)
    assert [window.heldout.paths, *(day.paths for day in window.days)] == [(path,) for path in partitions]
    assert (window.heldout.num_rows, window.heldout.num_slates) == (24, 6)


def test_the_digest_names_the_days_their_versions_and_what_is_held_out(tmp_path: Path) -> None:
    partitions = prepare(tmp_path, range(3))
    store = str(tmp_path / "store")
    whole = assemble_window(partitions, store, has_heldout=False)
    assert load_window(whole).heldout is None
    assert assemble_window(partitions[::-1], store, has_heldout=False) == whole
    assert assemble_window(partitions, store, has_heldout=True) != whole
    assert assemble_window(partitions[:2], store, has_heldout=False) != whole
    write_log(tmp_path / "log", DAY, lambda columns: columns["save"].__setitem__(3, True))
    partitions[0] = prepare_day(recipe_for(tmp_path / "log"), DAY, store)
    assert assemble_window(partitions, store, has_heldout=False) != whole
    assert load_window(whole).num_rows == 72


def test_a_store_may_be_moved(tmp_path: Path) -> None:
    path = assemble_window(prepare(tmp_path, range(2)), str(tmp_path / "store"), has_heldout=True)
    shutil.move(tmp_path / "store", tmp_path / "moved")
    window = load_window(str(tmp_path / "moved" / Path(path).relative_to(tmp_path / "store")))
    assert [Path(file).parent for file in window.days[0].files] == [Path(window.days[0].paths[0])]
    assert all(Path(file).is_file() for day in window.days for file in day.files)


def test_gaps_duplicates_and_windows_without_training_days_are_refused(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    partitions = prepare(tmp_path, [0, 1, 3])
    with pytest.raises(InputError, match="window: 2024-03-07 is missing between 2024-03-06 and 2024-03-08; "):
        assemble_window(partitions, store, has_heldout=True)
    with pytest.raises(InputError, match="window: 2024-03-05 is there twice"):
        assemble_window([partitions[0], partitions[0]], store, has_heldout=True)
    with pytest.raises(InputError, match="leaves none to train on"):
        assemble_window(partitions[:1], store, has_heldout=True)
    with pytest.raises(InputError, match="leaves none to train on"):
        assemble_window([], store, has_heldout=False)
    with pytest.raises(InputError, match=r"elsewhere/partition.json: cannot be read \(No such file or directory\); "):
        assemble_window([str(tmp_path / "elsewhere")], store, has_heldout=False)
    assert not (tmp_path / "store" / "windows").exists()


def test_a_manifest_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    path = Path(assemble_window(prepare(tmp_path, range(2)), str(tmp_path / "store"), has_heldout=True))
    content = json.loads(path.read_text())
    (gone,) = load_window(str(path)).days[0].paths
    shutil.rmtree(gone)
    with pytest.raises(InputError, match=f"its day {DAY} is gone from {gone}; prepare that day again"):
        load_window(str(path))
    del content["days"]
    for text, what in ((json.dumps(content), "not a window manifest"), ("{", "not JSON")):
        path.write_text(text)
        with pytest.raises(InputError, match=what):
            load_window(str(path))
    with pytest.raises(InputError, match="No such file"):
        load_window(str(tmp_path / "none.json"))
