"""Where a DAG runs, as far as it shows without an engine; `tests/containers` runs one in containers."""

import os
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from components.images import DATA_IMAGE, TRAINER_IMAGE
from components.run import Run
from pipelines.catalog import DAGS
from pipelines.cli import main
from pipelines.places import OnThisMachine
from pipelines.recipes import find_recipe
from pipelines.runners import docker
from pipelines.runners.folder import KFP, TERMINATION_LOG, start_afresh
from trainer.errors import InputError

USER = (10001, 10001)


def run_on(logs: Path | str, store: Path | str) -> Run:
    recipe = find_recipe("synthetic")
    return Run(
        recipe=replace(recipe, logs=replace(recipe.logs, uri=str(logs))), date=date(2024, 1, 9), store=str(store)
    )


def mounted(arguments: dict[str, object]) -> dict[str, tuple[str, bool]]:
    """Source and whether it is read-only, by target."""
    mounts = arguments["mounts"]
    assert isinstance(mounts, list)
    return {mount["Target"]: (mount["Source"], mount["ReadOnly"]) for mount in mounts}


def test_without_an_engine_one_line_tells_and_nothing_is_dropped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, tiny_log: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    run = run_on(tiny_log, tmp_path / "store")
    run.folder.mkdir(parents=True)
    run.summary_path.write_text("{}")
    options = ["--recipe", "synthetic", f"--set=logs.uri={tiny_log}", f"--store={tmp_path / 'store'}"]
    assert main(["retrain", "--runner", "docker", "--date", "2024-01-09", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("thawline: error: --runner docker: no Docker engine answers")
    assert "--runner local" in line
    assert run.summary_path.exists()


def test_a_container_has_no_privileges(tmp_path: Path, tiny_log: Path) -> None:
    run = run_on(tiny_log, tmp_path)
    arguments = docker.run_arguments(run, run.folder, USER)
    assert arguments["user"] == "10001:10001"
    assert arguments["read_only"] is True
    assert arguments["cap_drop"] == ["ALL"]
    assert arguments["security_opt"] == ["no-new-privileges"]
    assert set(arguments["tmpfs"]) == {"/tmp"}


def test_paths_are_the_same_inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The store, relative and behind a link, the log read-only, and what is not there left to the steps to tell."""
    tmp_path = tmp_path.resolve()
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to("disk")
    (tmp_path / "store" / "logs").mkdir()
    monkeypatch.chdir(tmp_path)
    run = run_on("store/logs", "store")
    arguments = docker.run_arguments(run, run.folder, USER)
    assert arguments["working_dir"] == str(tmp_path)
    disk = str(tmp_path / "disk")
    assert mounted(arguments) == {
        str(tmp_path / "store"): (disk, False),
        disk: (disk, False),
        str(tmp_path / "store" / "logs"): (f"{disk}/logs", True),
        f"{disk}/logs": (f"{disk}/logs", True),
        "/dev/termination-log": (f"{disk}/runs/{run.folder.name}/{TERMINATION_LOG}", False),
    }
    run = run_on("nowhere", "store")
    assert str(tmp_path / "nowhere") not in mounted(docker.run_arguments(run, run.folder, USER))


def test_a_home_that_others_may_not_enter_is_covered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "cwd", staticmethod(lambda: Path("/root/work")))
    monkeypatch.setattr(os, "getcwd", lambda: "/root/work")
    run = run_on("/nowhere", ".thawline")
    assert set(docker.run_arguments(run, run.folder, USER)["tmpfs"]) == {"/tmp", "/root", "/root/work"}


def test_the_images_of_a_dag() -> None:
    assert docker.images_of(DAGS["retrain"](OnThisMachine())) == sorted([DATA_IMAGE, TRAINER_IMAGE])


def test_containers_run_as_the_user_unless_that_is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgid", lambda: 7)
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert docker.container_user() == (1234, 7)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert docker.container_user() == USER


def test_roots_store_must_be_the_containers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "partitions").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 0)
    own = (tmp_path.stat().st_uid, tmp_path.stat().st_gid)
    docker.require_owned(tmp_path, own)
    docker.require_owned(tmp_path / "none yet", USER)
    with pytest.raises(InputError, match=f"chown -R 10001:10001 {tmp_path}"):
        docker.require_owned(tmp_path, USER)


def test_a_run_starts_afresh(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    start_afresh(folder)
    for name in (f"{KFP}/old", "steps/train.json", "report/page.html", "summary.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    (folder / TERMINATION_LOG).write_text("a mistake\n")
    start_afresh(folder, (os.getuid(), os.getgid()))
    assert sorted(path.name for path in folder.iterdir()) == [KFP, TERMINATION_LOG]
    assert not list((folder / KFP).iterdir())
    assert not (folder / TERMINATION_LOG).read_text()
