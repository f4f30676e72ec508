"""What each process of a job executes: ``python -m trainer.launch.rank JOB.json``, under ``torchrun``."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from trainer import logs
from trainer.batches.window import open_window
from trainer.checkpoint import write_checkpoint
from trainer.launch import lease
from trainer.launch.job import Job
from trainer.model.backbone import KIND as BACKBONE
from trainer.model.backbone import load_backbone, pretrained_part, shape_facts
from trainer.recipe import Recipe, VlmConfig
from trainer.runs import pretrain, process_group, train
from trainer.serving import save_model
from trainer.storage.publishing import write_json
from trainer.thaw.arms import plan_of
from trainer.windows.manifest import load_window


def main() -> None:
    """Does this rank's part of the job."""
    logs.take_over()
    path = Path(sys.argv[1])
    job = Job.read(path)
    with process_group() as device:
        try:
            if dist.get_rank() == 0:
                lease.watch(path.parent, on_lost=_leave_unfollowed)
            check_world(job.recipe)
            {"pretrain": _run_pretraining, "train": _run_training}[job.task](job, device)
            dist.barrier()
        except Exception:
            logs.say_exception()
            _leave(1)
        _leave(0)


def check_world(recipe: Recipe) -> None:
    """Checks that as many ranks came as the recipe says.

    Raises:
        RuntimeError: There are others, as when a runtime has its own mind of how many processes a host has.
    """
    if dist.get_world_size() != recipe.training.num_ranks:
        raise RuntimeError(f"{dist.get_world_size()} ranks came, training.num_ranks is {recipe.training.num_ranks}")


def _run_pretraining(job: Job, device: torch.device) -> None:
    window = load_window(job.window)
    recipe = replace(job.recipe, vlm=VlmConfig())  # a backbone holds no encoder
    run = pretrain(recipe, open_window(window.days, recipe), device=device)
    rows, state = run.tables.rows(), run.tables.state()
    if dist.get_rank() == 0:
        dense = {name: tensor.detach().cpu() for name, tensor in pretrained_part(run.ranker).items()}
        span = {"first_day": window.first_day.isoformat(), "last_day": window.last_day.isoformat()}
        facts: dict[str, Any] = {**shape_facts(recipe), **span, "num_rows": window.num_rows}
        facts["recipe"] = recipe.to_json()
        write_checkpoint(job.out, kind=BACKBONE, facts=facts, parts={"tables": rows, "state": state, "dense": dense})


def _run_training(job: Job, device: torch.device) -> None:
    recipe, window = job.recipe, load_window(job.window)
    assert window.heldout is not None, "launch_training refuses such a window"
    rows, heldout = open_window(window.days, recipe), open_window([window.heldout], recipe)
    out = Path(job.out)
    backbone = load_backbone(job.backbone, recipe)
    run = train(recipe, rows, heldout, backbone, device=device, trace=out / "trace.json")
    tables = run.tables.rows()
    if dist.get_rank() == 0:
        save_model(out / "model", recipe, run.ranker, tables)
        schedule = plan_of(recipe).schedule
        history = {"arm": recipe.thaw.arm, "thaw_epoch": schedule.thaw_epoch, **run.history.to_dict()}
        write_json(out / "history.json", history)


def _leave_unfollowed() -> NoReturn:
    logs.say("no step follows this job any more: leaving", level="error")
    _leave(1)


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
