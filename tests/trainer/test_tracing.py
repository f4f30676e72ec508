"""A trace of a tiny run."""

import json
from pathlib import Path

import pytest
import torch

from tests.trainer.tiny_runs import COLUMNS, HELDOUT, recipe
from trainer.model.backbone import Backbone
from trainer.runs import train

RANGES = {"network", "lookup: send ids", "lookup: read rows", "lookup: update", "lookup: wait"}


@pytest.mark.parametrize("num_steps", [2, 999])
def test_a_trace_names_what_steps_do_on_every_thread(tiny_backbone: Backbone, tmp_path: Path, num_steps: int) -> None:
    settings = {"training.profile_steps": str(num_steps), "lookup.mode": "semi"}
    trace = tmp_path / "out" / "trace.json"
    run = train(recipe("delayed", settings), COLUMNS, HELDOUT, tiny_backbone, device=torch.device("cpu"), trace=trace)
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") in RANGES]
    assert {event["name"] for event in events} == RANGES
    threads = {event["name"]: event["tid"] for event in events}
    assert threads["network"] == threads["lookup: wait"] != threads["lookup: update"] == threads["lookup: read rows"]
    num_networks = sum(event["name"] == "network" for event in events)
    last = sum(point.epoch > 1 for point in run.history.curve)
    assert num_networks == (2 if num_steps == 2 else last - 1), "the steps asked for, or all but the pass's first"


def test_nothing_is_traced_unless_asked_for(tiny_backbone: Backbone, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    train(recipe("delayed"), COLUMNS, HELDOUT, tiny_backbone, device=torch.device("cpu"), trace=trace)
    assert not trace.exists()
