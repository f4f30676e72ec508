"""Starts runs as processes of ``torchrun``, and is what each of those processes executes."""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from trainer.batches.columns import Columns
from trainer.checkpoint import write_checkpoint
from trainer.errors import InputError
from trainer.model.backbone import KIND as BACKBONE
from trainer.model.backbone import load_backbone, open_backbone, pretrained_part, shape_facts
from trainer.recipe import Recipe, VlmConfig
from trainer.runs import pretrain, process_group, train
from trainer.serving import save_model
from trainer.thaw.arms import plan_of
from trainer.windows.manifest import load_window
from trainer.windows.storage import write_json


def launch_pretraining(recipe: Recipe, window_path: str, out: str) -> None:
    """Pretrains a backbone on a window's days; progress goes to stderr.

    Args:
        recipe: What to train; ``recipe.training.num_ranks`` processes are started.
        window_path: Manifest of the backbone's days.
        out: Folder for the backbone, see `trainer.model.backbone`.

    Raises:
        InputError: The window is not there.
        RuntimeError: A process failed; its traceback is on stderr.
    """
    load_window(window_path)
    _torchrun({"task": "pretrain", "recipe": recipe.to_json(), "window": window_path, "out": out}, recipe)


def launch_training(recipe: Recipe, window_path: str, backbone: str, out: str) -> None:
    """Trains a ranker on a window, starting from a backbone; progress goes to stderr.

    Args:
        recipe: What to train; ``recipe.training.num_ranks`` processes are started.
        window_path: Manifest of the window, with its held-out day.
        backbone: Folder of the backbone.
        out: Folder for ``model/`` (see `trainer.serving`), ``history.json`` and, where the recipe asks for it,
            ``trace.json``.

    Raises:
        InputError: The window is not there or has no held-out day; the backbone is unfinished, changed, or of other
            dimensions than the recipe's.
        RuntimeError: A process failed; its traceback is on stderr.
    """
    if load_window(window_path).heldout is None:
        raise InputError(f"{window_path}: window has no held-out day to evaluate on; assemble it with one")
    open_backbone(backbone, recipe)
    job = {"task": "train", "recipe": recipe.to_json(), "window": window_path, "backbone": backbone, "out": out}
    _torchrun(job, recipe)


def _torchrun(job: Mapping[str, str], recipe: Recipe) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(job, file)
        file.flush()
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={recipe.training.num_ranks}", "-m", "trainer.launch", file.name]
        # Gloo's ranks compute with one thread each (`trainer.runs.process_group`); saying so here keeps torchrun quiet.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        status = subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode
    if status:
        raise RuntimeError(f"{job['task']}: torchrun failed with exit code {status}; see the traceback above")


def _run_pretraining(job: Mapping[str, str], device: torch.device) -> None:
    recipe, window = Recipe.from_json(job["recipe"]), load_window(job["window"])
    recipe = replace(recipe, vlm=VlmConfig())  # a backbone holds no encoder
    columns = Columns.read(window.days, recipe)
    run = pretrain(recipe, columns, device=device)
    rows, state = run.tables.rows(), run.tables.state()
    if dist.get_rank() == 0:
        dense = {name: tensor.detach().cpu() for name, tensor in pretrained_part(run.ranker).items()}
        span = {"first_day": window.first_day.isoformat(), "last_day": window.last_day.isoformat()}
        facts: dict[str, Any] = {**shape_facts(recipe), **span, "num_rows": window.num_rows}
        facts["recipe"] = recipe.to_json()
        write_checkpoint(job["out"], kind=BACKBONE, facts=facts, parts={"tables": rows, "state": state, "dense": dense})


def _run_training(job: Mapping[str, str], device: torch.device) -> None:
    recipe, window = Recipe.from_json(job["recipe"]), load_window(job["window"])
    assert window.heldout is not None, "launch_training refuses such a window"
    columns, heldout = Columns.read(window.days, recipe), Columns.read([window.heldout], recipe)
    trace = Path(job["out"]) / "trace.json"
    run = train(recipe, columns, heldout, load_backbone(job["backbone"], recipe), device=device, trace=trace)
    tables = run.tables.rows()
    if dist.get_rank() == 0:
        out = Path(job["out"])
        save_model(out / "model", recipe, run.ranker, tables)
        schedule = plan_of(recipe).schedule
        history = {"arm": recipe.thaw.arm, "thaw_epoch": schedule.thaw_epoch, **run.history.to_dict()}
        write_json(out / "history.json", history)


def main() -> None:
    """Entry of each process: ``python -m trainer.launch JOB.json`` under torchrun."""
    job = json.loads(Path(sys.argv[1]).read_text())
    with process_group() as device:
        try:
            {"pretrain": _run_pretraining, "train": _run_training}[job["task"]](job, device)
            dist.barrier()
        except Exception:
            traceback.print_exc()
            _leave(1)
        _leave(0)


def _leave(status: int) -> NoReturn:
    """Ends the process, its work being published or failed, without taking groups and interpreter down.

    A thread of gloo that asks for the interpreter meanwhile would abort the process ("terminate called without an
    active exception"), and torchrun would call the run failed; and the group would wait for a lookup under way.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
