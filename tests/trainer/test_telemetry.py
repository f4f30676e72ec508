"""Metrics as Prometheus scrapes them, of a real training."""

import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.trainer import tiny_runs
from trainer import telemetry
from trainer.logs import RUN_VARIABLE
from trainer.model.backbone import Backbone
from trainer.telemetry import PORT_VARIABLE, Telemetry

Metrics = dict[str, float]


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A free port that this process may serve on; nothing is counted after the test."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free: int = probe.getsockname()[1]
    monkeypatch.setenv(PORT_VARIABLE, str(free))
    telemetry.serve.cache_clear()
    yield free
    telemetry.serve.cache_clear()


def scrape(port: int, run: str) -> Metrics:
    """Values of one run's metrics, by name and by what tells them apart beside recipe and run."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    labels = f'recipe="tiny",run="{run}"'
    found = [line.rsplit(" ", 1) for line in lines if labels in line]
    return {name.replace(labels, "").replace("{}", ""): float(value) for name, value in found}


def test_a_training_is_counted(
    port: int, one_rank: Any, tiny_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "run-1")
    run = tiny_runs.trained(tiny_runs.recipe(settings={"lookup.mode": "semi"}), tiny_backbone)
    found = scrape(port, "run-1")
    history = run.history.to_dict()
    num_steps = history["num_steps"]
    assert found["thawline_steps_total"] == num_steps
    assert found["thawline_rows_total"] == pytest.approx(
        sum(epoch["rows_per_s"] * epoch["duration_s"] for epoch in history["epochs"])
    )
    assert found["thawline_step_seconds_count"] == num_steps
    trained_s = sum(epoch["duration_s"] for epoch in history["epochs"])
    assert found["thawline_step_seconds_sum"] == pytest.approx(trained_s, rel=0.2, abs=0.05)
    exposed_s = sum(epoch["lookup"]["exposed_s"] for epoch in history["epochs"])
    assert found["thawline_lookup_exposed_seconds_total"] == pytest.approx(exposed_s)
    assert (found["thawline_adapting"], found["thawline_staleness_updates"]) == (1, 1)
    assert (found["thawline_epoch"], found["thawline_progress_ratio"]) == (2, 1)


@pytest.mark.parametrize(
    ("mode", "arm", "wanted"), [("sync", "delayed", (1, 0)), ("exact", "delayed", (1, 0)), ("semi", "frozen", (0, 0))]
)
def test_only_stale_rows_are_called_stale(
    port: int, one_rank: Any, tiny_backbone: Backbone, monkeypatch: pytest.MonkeyPatch, mode: str, arm: Any, wanted: Any
) -> None:
    run = f"{mode}-{arm}"
    monkeypatch.setenv(RUN_VARIABLE, run)
    tiny_runs.trained(tiny_runs.recipe(arm, {"lookup.mode": mode}), tiny_backbone)
    found = scrape(port, run)
    assert (found["thawline_adapting"], found["thawline_staleness_updates"]) == wanted


def test_without_a_port_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PORT_VARIABLE, raising=False)
    telemetry.serve.cache_clear()
    assert not telemetry.serve()


def test_a_port_that_is_taken_stops_no_training(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setenv(PORT_VARIABLE, str(taken))
        telemetry.serve.cache_clear()
        assert not telemetry.serve()
    telemetry.serve.cache_clear()
    assert f"no metrics: port {taken} cannot be served" in capfd.readouterr().err


def test_progress_goes_on_where_a_run_resumed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert telemetry.serve()
    monkeypatch.setenv(RUN_VARIABLE, "resumed")
    counted = Telemetry(tiny_runs.recipe(), num_steps=4)
    counted.resume(num_done=2)
    counted.begin_epoch()
    counted.step(epoch=1, num_rows=8, adapting=True)
    assert scrape(port, "resumed")["thawline_progress_ratio"] == 0.75
