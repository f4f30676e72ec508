"""Process groups for the core's tests: this process alone, and more that run what a test sends them."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import pytest

Ranks = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def one_rank() -> Iterator[Any]:
    """Joins a group of this process alone; gives its device."""
    # The registry's tests share this folder and need no torch.
    from trainer.runs import process_group

    with process_group(alone=True) as device:
        yield device


@pytest.fixture(scope="session")
def tiny_backbone(one_rank: Any) -> Any:
    """What whole runs on tiny rows start from; read it, do not change it."""
    from tests.trainer.tiny_runs import make_backbone

    return make_backbone()


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Runs a module's function in each of two processes that share a gloo group; gives what they return, by rank."""
    yield from _ranks(2, tmp_path_factory.mktemp("two_ranks") / "store")


@pytest.fixture(scope="session")
def four_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """`two_ranks` of four."""
    yield from _ranks(4, tmp_path_factory.mktemp("four_ranks") / "store")


def _ranks(number: int, store: Path) -> Iterator[Ranks]:
    # Importing takes seconds, so one process does it, before it has threads, and the others are forked from it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainer.runs"])
    next_rank = context.Value("i", 0)
    with ProcessPoolExecutor(number, context, initializer=_join_group, initargs=(store, next_rank, number)) as pool:

        def run(function: Callable[..., Any], *args: Any) -> list[Any]:
            tasks = [pool.submit(_on_rank, function, *args) for _ in range(number)]
            by_rank = dict(task.result(timeout=120) for task in tasks)
            return [by_rank[rank] for rank in range(number)]

        yield run


def _join_group(store: Path, next_rank: "Synchronized[int]", number: int) -> None:
    import torch
    import torch.distributed as dist

    with next_rank.get_lock():
        rank = next_rank.value
        next_rank.value += 1
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store.as_uri(), rank=rank, world_size=number)


def _on_rank(function: Callable[..., Any], *args: Any) -> tuple[int, Any]:
    import torch.distributed as dist

    dist.barrier()  # so that neither process takes the other's task
    return dist.get_rank(), function(*args)
