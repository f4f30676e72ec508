"""The verb `plan`: what a recipe's tables would cost on a cluster that is not here."""

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pipelines.options import Verbs, add_json_option, add_recipe_options, chosen_recipe
from trainer.errors import InputError
from trainer.recipe import Recipe

if TYPE_CHECKING:  # it loads torch, which the other verbs' users need not wait for
    from trainer.embeddings.planning import TablesPlan

_GIB, _MIB = 2**30, 2**20


def add_to(verbs: Verbs) -> None:
    """Adds the verb to the command."""
    plan = verbs.add_parser("plan", help="shards, memory, bytes and lookup time of a recipe's tables on other GPUs")
    plan.add_argument("--gpus", type=int, required=True, metavar="N", help="GPUs, all hosts together")
    plan.add_argument("--hbm-gib", type=float, required=True, metavar="M", help="memory of one GPU, in GiB")
    plan.add_argument("--gpus-per-host", type=int, metavar="N", help="GPUs that share a host (default: 8)")
    plan.add_argument(
        "--intra-gbps",
        type=float,
        metavar="G",
        help="what one GPU sends within its host, in Gbit/s of 1e9 bits (default: 5154, TorchRec's 600 GiB/s)",
    )
    plan.add_argument(
        "--inter-gbps",
        type=float,
        metavar="G",
        help="what one GPU sends to other hosts, in Gbit/s of 1e9 bits (default: 107.4, TorchRec's 12.5 GiB/s)",
    )
    plan.add_argument(
        "--step-ms", type=float, metavar="X", help="what a step takes without lookups, as measured, in milliseconds"
    )
    add_recipe_options(plan)
    add_json_option(plan)
    plan.set_defaults(verb=_plan)


def _plan(arguments: argparse.Namespace) -> None:
    recipe = chosen_recipe(arguments)
    step_ms: float | None = arguments.step_ms
    if step_ms is not None and not 0 <= step_ms < math.inf:
        raise InputError(f"--step-ms {step_ms}: no time; name milliseconds, 0 or more")
    # Hundreds of modules come along with TorchRec's planner; who asks for another verb does not wait for them.
    from trainer.embeddings.planner import Cluster
    from trainer.embeddings.planning import plan_tables

    chosen = {
        name: getattr(arguments, name)
        for name in ("gpus_per_host", "intra_gbps", "inter_gbps")
        if getattr(arguments, name) is not None
    }
    plan = plan_tables(recipe, Cluster(num_gpus=arguments.gpus, hbm_gib=arguments.hbm_gib, **chosen))
    content = as_json(recipe, plan, step_ms)
    print(json.dumps(content) if arguments.json else plan_table(content))


def as_json(recipe: Recipe, plan: "TablesPlan", step_ms: float | None) -> dict[str, Any]:
    """The plan for scripts; units are in the names.

    Args:
        recipe: That was planned.
        plan: Its plan.
        step_ms: What a step takes without lookups; None when it is not known.
    """
    memory, sent, time = plan.memory, plan.sent, plan.time
    return {
        "recipe": recipe.name,
        "recipe_mode": recipe.lookup.mode,
        "cluster": {**asdict(plan.cluster), "num_hosts": plan.cluster.num_hosts},
        "tables": [asdict(table) for table in plan.tables],
        "batch": {"rows_per_gpu": plan.batch_rows_per_gpu, "lookups_per_row": plan.lookups_per_row},
        "memory_bytes": {
            **asdict(memory),
            "needed": memory.needed,
            "usable": plan.cluster.usable_bytes,
            "reserved": plan.cluster.hbm_bytes - plan.cluster.usable_bytes,
            "torchrec_estimate": plan.planner_bytes,
        },
        "step_bytes": {**asdict(sent), "total": sent.total, "precision": recipe.lookup.precision},
        "time_ms": {**_without_units(asdict(time)), "lookup": time.lookup_ms, "update": time.update_ms},
        "step_ms": step_ms,
        "overlap": {
            "frozen": _overlap(plan, step_ms, adapting=False),
            "adapting": _overlap(plan, step_ms, adapting=True),
        },
    }


def _overlap(plan: "TablesPlan", step_ms: float | None, *, adapting: bool) -> dict[str, float | None]:
    """What a step waits for, and the step that hides it all."""
    return {
        "sync_exposed_ms": plan.lane_ms(adapting=adapting),
        "semi_exposed_ms": None if step_ms is None else plan.exposed_ms(step_ms, adapting=adapting),
        "hidden_from_step_ms": plan.lane_ms(adapting=adapting),
    }


def _without_units(times: dict[str, float]) -> dict[str, float]:
    return {name.removesuffix("_ms"): value for name, value in times.items()}


def plan_table(content: dict[str, Any]) -> str:
    """The plan for people.

    Args:
        content: Of `as_json`.
    """
    cluster = content["cluster"]
    hosts = f"{cluster['num_hosts']} host{'s' if cluster['num_hosts'] > 1 else ''}"
    lines = [
        f"{content['recipe']}: fits on {cluster['num_gpus']} GPUs of {cluster['hbm_gib']:g} GiB, {hosts}; "
        f"{cluster['intra_gbps']:,.0f} Gbit/s within a host, {cluster['inter_gbps']:,.1f} between hosts, a GPU",
        "",
        *_table_lines(content["tables"]),
        "",
        *_memory_lines(content),
        "",
        *_byte_lines(content),
        "",
        *_time_lines(content["time_ms"]),
        "",
        *_overlap_lines(content),
    ]
    return "\n".join(lines)


def _table_lines(tables: list[dict[str, Any]]) -> Iterator[str]:
    yield f"  {'table':<10} {'rows':>16} {'dim':>5} {'rows a GPU':>14} {'GiB a GPU':>10}   row-wise, fused, in HBM"
    for table in tables:
        yield (
            f"  {table['name']:<10} {table['num_rows']:>16,} {table['dim']:>5} {table['rows_per_gpu']:>14,} "
            f"{table['bytes_per_gpu'] / _GIB:>10,.3f}"
        )


def _memory_lines(content: dict[str, Any]) -> Iterator[str]:
    memory, hbm_gib = content["memory_bytes"], content["cluster"]["hbm_gib"]
    share = memory["usable"] / (memory["usable"] + memory["reserved"])
    names = {
        "rows": "rows",
        "optimizer": "Adagrad sums",
        "bookkeeping": "bookkeeping of rows",
        "impressions": "impressions of all rows, on every GPU",
        "lookups": "lookups in flight",
        "needed": "needed",
        "usable": f"there: {share:.0%} of {hbm_gib:g}, the rest is for network and CUDA",
        "torchrec_estimate": "needed, by TorchRec's estimate of tables and one batch",
    }
    yield f"  {'memory a GPU':<58} {'GiB':>12}"
    for name, told in names.items():
        yield f"    {told:<56} {memory[name] / _GIB:>12,.3f}"


def _byte_lines(content: dict[str, Any]) -> Iterator[str]:
    sent, batch = content["step_bytes"], content["batch"]
    names = {
        "counts": "counts of ids",
        "ids": "ids out, 32 bits",
        "rows": f"rows back, {sent['precision']}",
        "gradients": "gradients, unless frozen",
        "total": "all",
    }
    yield f"  {'sent by a GPU in a step, at most (as if no id came twice)':<58} {'MiB':>12}"
    yield f"    {batch['rows_per_gpu']:,} impressions a GPU, {batch['lookups_per_row']:,} ids each"
    for name, told in names.items():
        yield f"    {told:<56} {sent[name] / _MIB:>12,.3f}"


def _time_lines(times: dict[str, float]) -> Iterator[str]:
    names = {
        "ids": "ids out",
        "gather": "rows read",
        "rows": "rows back",
        "lookup": "lookup",
        "gradients": "gradients",
        "scatter": "rows updated",
        "update": "update, unless frozen",
    }
    yield f"  {'predicted (TorchRec), a step':<58} {'ms':>12}"
    for name, told in names.items():
        yield f"    {told:<56} {times[name]:>12,.3f}"


def _overlap_lines(content: dict[str, Any]) -> Iterator[str]:
    step_ms = content["step_ms"]
    of_step = "" if step_ms is None else f" beside a step of {step_ms:g} ms"
    yield f"  {'a step waits for tables, ms':<24}{of_step:<34} {'frozen':>12} {'adapting':>12}"
    parts = [content["overlap"][phase] for phase in ("frozen", "adapting")]

    def line(told: str, key: str) -> str:
        return f"    {told:<56} " + " ".join(f"{part[key]:>12,.3f}" for part in parts)

    yield line("lookup.mode=sync", "sync_exposed_ms")
    if step_ms is None:
        yield line("lookup.mode=semi: nothing, if the step takes at least", "hidden_from_step_ms")
    else:
        yield line("lookup.mode=semi", "semi_exposed_ms")
    if content["recipe_mode"] == "exact":
        yield "    lookup.mode=exact: as semi, and the rows that the last update touched again, which is not predicted"
