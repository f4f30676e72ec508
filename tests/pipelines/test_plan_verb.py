"""`thawline plan` as people and scripts use it."""

import json
import re
from typing import Any

import pytest
from torchrec.distributed.planner.constants import CROSS_NODE_BANDWIDTH, INTRA_NODE_BANDWIDTH

from pipelines.cli import main

PLAN = ("plan", "--recipe", "synthetic", "--gpus", "16", "--hbm-gib", "80")
HUGE = (
    *("--set", "tables.num_pin_rows=4000000000", "--set", "tables.num_user_rows=500000000", "--set", "tables.dim=64"),
    *("--set", "training.batch_rows=65536", "--set", "model.history_length=98"),
)
MANY = ("plan", "--gpus", "64", "--hbm-gib", "80", *HUGE)


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a plan prints; nothing goes to stderr."""
    assert main(arguments) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def content(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    out = printed(capfd, *arguments, "--json")
    assert out.count("\n") == 1
    read: dict[str, Any] = json.loads(out)
    return read


def test_json_is_one_object_with_these_keys(capfd: pytest.CaptureFixture[str]) -> None:
    read = content(capfd, *MANY, "--set", "lookup.mode=semi")
    keys = {name: sorted(part) for name, part in read.items() if isinstance(part, dict)}
    assert list(read) == [
        *("recipe", "recipe_mode", "cluster", "tables", "batch", "memory_bytes", "step_bytes", "time_ms"),
        *("step_ms", "overlap"),
    ]
    assert keys == {
        "cluster": ["gpus_per_host", "hbm_gib", "inter_gbps", "intra_gbps", "num_gpus", "num_hosts"],
        "batch": ["lookups_per_row", "rows_per_gpu"],
        "memory_bytes": [
            *("bookkeeping", "impressions", "lookups", "needed", "optimizer", "reserved", "rows"),
            *("torchrec_estimate", "usable"),
        ],
        "step_bytes": ["counts", "gradients", "ids", "precision", "rows", "total"],
        "time_ms": ["gather", "gradients", "ids", "lookup", "rows", "scatter", "update"],
        "overlap": ["adapting", "frozen"],
    }
    assert [sorted(table) for table in read["tables"]] == [
        ["bytes_per_gpu", "dim", "name", "num_rows", "rows_per_gpu"]
    ] * 2
    overlap = ["hidden_from_step_ms", "semi_exposed_ms", "sync_exposed_ms"]
    assert [sorted(read["overlap"][phase]) for phase in ("frozen", "adapting")] == [overlap] * 2
    assert (read["recipe"], read["recipe_mode"]) == ("complete_journey", "semi")


def test_json_adds_up(capfd: pytest.CaptureFixture[str]) -> None:
    read = content(capfd, *MANY)
    memory, sent, times = read["memory_bytes"], read["step_bytes"], read["time_ms"]
    assert read["tables"][1]["rows_per_gpu"] == 4_000_000_000 // 64
    assert memory["usable"] + memory["reserved"] == 80 * 2**30
    assert memory["usable"] == int(0.85 * 80 * 2**30)
    parts = ("rows", "optimizer", "bookkeeping", "impressions", "lookups")
    assert memory["needed"] == sum(memory[part] for part in parts)
    assert sent["total"] == sent["counts"] + sent["ids"] + sent["rows"] + sent["gradients"]
    assert times["lookup"] == pytest.approx(times["ids"] + times["gather"] + times["rows"])
    assert times["update"] == pytest.approx(times["gradients"] + times["scatter"])


def test_a_known_step_says_what_it_waits_for(capfd: pytest.CaptureFixture[str]) -> None:
    unknown, known = content(capfd, *MANY), content(capfd, *MANY, "--step-ms", "2.5")
    times = unknown["time_ms"]
    both = times["lookup"] + times["update"]
    assert times["lookup"] < 2.5 < both
    assert unknown["step_ms"] is None
    assert unknown["overlap"] == {
        phase: {"sync_exposed_ms": ms, "semi_exposed_ms": None, "hidden_from_step_ms": ms}
        for phase, ms in (("frozen", times["lookup"]), ("adapting", both))
    }
    assert known["overlap"]["frozen"]["semi_exposed_ms"] == 0
    assert known["overlap"]["adapting"]["semi_exposed_ms"] == pytest.approx(both - 2.5)


def test_options_reach_the_plan(capfd: pytest.CaptureFixture[str]) -> None:
    read = content(capfd, *PLAN, "--gpus-per-host", "16", "--intra-gbps", "800", "--inter-gbps", "10")
    cluster = read["cluster"]
    assert cluster == {
        **{"num_gpus": 16, "hbm_gib": 80.0, "gpus_per_host": 16, "num_hosts": 1},
        **{"intra_gbps": 800.0, "inter_gbps": 10.0},
    }
    sent = read["batch"]["rows_per_gpu"] * read["batch"]["lookups_per_row"] * 15 / 16
    assert read["time_ms"]["ids"] == pytest.approx(sent * 4 / (800 * 125_000))


def test_the_table_says_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    read, told = content(capfd, *MANY), printed(capfd, *MANY)
    values = {line[:60].strip(): line[60:].split() for line in told.splitlines() if len(line) > 60}
    assert values["needed"] == [f"{read['memory_bytes']['needed'] / 2**30:,.3f}"]
    assert values["there: 85% of 80, the rest is for network and CUDA"] == ["68.000"]
    assert values["all"] == [f"{read['step_bytes']['total'] / 2**20:,.3f}"]
    assert values["lookup"] == [f"{read['time_ms']['lookup']:,.3f}"]
    overlap = [read["overlap"][phase]["hidden_from_step_ms"] for phase in ("frozen", "adapting")]
    assert values["lookup.mode=semi: nothing, if the step takes at least"] == [f"{ms:,.3f}" for ms in overlap]
    assert "4,000,000,000" in told
    assert "64 GPUs of 80 GiB, 8 hosts" in told


def test_the_table_of_a_known_step(capfd: pytest.CaptureFixture[str]) -> None:
    told = printed(capfd, *PLAN, "--step-ms", "20", "--set", "lookup.mode=exact")
    assert "beside a step of 20 ms" in told
    assert re.search(r"lookup\.mode=semi +0\.000 +0\.000\n", told)
    assert "lookup.mode=exact" in told.splitlines()[-1]


def test_help_states_torchrecs_bandwidths(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(("plan", "--help"))
    told = " ".join(capsys.readouterr().out.split())
    assert (
        f"default: {INTRA_NODE_BANDWIDTH * 8e-6:.0f}, TorchRec's {INTRA_NODE_BANDWIDTH * 1000 / 2**30:.0f} GiB/s"
        in told
    )
    assert f"default: {CROSS_NODE_BANDWIDTH * 8e-6:.1f}, TorchRec's {CROSS_NODE_BANDWIDTH * 1000 / 2**30} GiB/s" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plan",), "--gpus"),
        (("plan", "--gpus", "8"), "--hbm-gib"),
        ((*PLAN, "--gpus", "0"), "0 GPUs"),
        ((*PLAN, "--gpus", "many"), "many"),
        ((*PLAN, "--gpus", "12"), "12 GPUs do not fill hosts of 8"),
        ((*PLAN, "--hbm-gib", "-80"), "-80.0 GiB"),
        ((*PLAN, "--gpus-per-host", "0"), "0 GPUs a host"),
        ((*PLAN, "--inter-gbps", "0"), "0.0 Gbit/s between hosts"),
        ((*PLAN, "--step-ms", "-1"), "--step-ms -1.0"),
        ((*PLAN, "--set", "tables.dim=6"), "no multiple of 4"),
        ((*PLAN, "--set", "tables.num_pin_rows=0"), "tables.num_pin_rows"),
        ((*PLAN, *HUGE), "too much; largest table 'pin'"),
    ],
    ids=lambda value: " ".join(value[5:] or value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_planned_is_told_in_one_line(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert main((*arguments, "--json")) == 2
    out, err = capfd.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("thawline: error: ")
    assert told in line
    assert out == ""
