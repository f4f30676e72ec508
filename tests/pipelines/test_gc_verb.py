import json
import os
from pathlib import Path

import pytest

from pipelines.cli import main
from tests.trainer.windows.logs import DAY, columns_of, table_of
from tests.trainer.windows.partitions import write_partition
from trainer.registry.tracking import connect
from trainer.registry.windows import WINDOW_TAG
from trainer.storage.uris import join
from trainer.windows.manifest import assemble_window, load_window


@pytest.fixture
def tracking_uri(tmp_path: Path) -> str:
    uri = f"sqlite:///{tmp_path}/store/mlflow.db"
    connect(uri).search_experiments()
    return uri


def make_day(store: str, address: str) -> str:
    folder = join(store, "partitions", f"dt={DAY}", address)
    write_partition(folder, DAY, table_of(columns_of()))
    return folder


def test_what_nothing_names_is_listed_and_then_removed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tracking_uri: str
) -> None:
    store = str(tmp_path / "store")
    kept, unnamed = (make_day(store, address * 16) for address in "ab")
    window = assemble_window([kept], store, has_heldout=False)
    run = connect(tracking_uri).create_run("0", tags={WINDOW_TAG: load_window(window).digest})
    assert main(["data", "gc", "--store", store]) == 0
    assert capsys.readouterr().out == f"would remove, with --delete: 0 of {store}, 0.00 MiB\n"
    assert main(["data", "gc", "--store", store, "--grace-days", "0"]) == 0
    line, last = capsys.readouterr().out.splitlines()
    assert line.endswith(f"MiB  {unnamed}: no window names this day")
    assert last.startswith(f"would remove, with --delete: 1 of {store}, ")
    assert sorted(os.listdir(Path(unnamed).parent)) == ["a" * 16, "b" * 16]
    assert main(["data", "gc", "--store", store, "--grace-days", "0", "--delete", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [part["uri"] for part in content["garbage"]] == [unnamed]
    assert (content["removed"], content["num_bytes"] > 0) == (True, True)
    assert os.listdir(Path(kept).parent) == ["a" * 16]
    assert load_window(window).num_rows == 24
    connect(tracking_uri).delete_run(run.info.run_id)
    assert main(["data", "gc", "--store", store, "--grace-days", "0", "--delete"]) == 0
    assert not Path(kept).exists()
    assert not Path(window).exists()


def test_days_of_a_bucket_are_removed_too(capsys: pytest.CaptureFixture[str], bucket: str, tracking_uri: str) -> None:
    store = join(bucket, "store")
    unnamed = make_day(store, "b" * 16)
    arguments = [
        "data",
        "gc",
        "--store",
        store,
        "--tracking-uri",
        tracking_uri,
        "--grace-days",
        "0",
        "--delete",
        "--json",
    ]
    for found in ([unnamed], []):
        assert main([*arguments, "--delete"]) == 0
        assert [part["uri"] for part in json.loads(capsys.readouterr().out)["garbage"]] == found


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--store", "{tmp}/none"], "{tmp}/none: no such folder"),
        (["--store", "{tmp}"], "sqlite:///{tmp}/mlflow.db: no MLflow here to say what models name; name it with"),
        (["--store", "{tmp}", "--grace-days", "-1"], "--grace-days -1.0: cannot be negative"),
        (["--store", "{tmp}", "--grace-days", "nan"], "--grace-days nan: cannot be negative"),
    ],
)
def test_without_knowing_what_is_needed_nothing_goes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], told: str
) -> None:
    store = make_day(str(tmp_path), "a" * 16)
    assert main(["data", "gc", "--delete", *(text.format(tmp=tmp_path) for text in arguments)]) == 2
    assert told.format(tmp=tmp_path) in capsys.readouterr().err
    assert Path(store).exists()
