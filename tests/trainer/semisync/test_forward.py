"""The pipeline against stale training written out by hand, to the bit, on 1, 2 and 4 ranks."""

import dataclasses
import gc
import threading
from typing import Any

import pytest
import torch

from tests.trainer.conftest import Ranks
from tests.trainer.semisync.stale import (
    CPU,
    KINDS,
    NUM_BATCHES,
    PHASES,
    Network,
    make_batches,
    make_lookup,
    plain,
    trained,
)
from trainer.embeddings.lookup import Ids, PlainTables
from trainer.semisync.forward import PrefetchingForward
from trainer.semisync.lane import ThreadLane
from trainer.semisync.lookahead import Lookahead

RUNS = [(kind, phase) for kind in KINDS for phase in PHASES]


def _all_runs(mode: str, kinds: tuple[str, ...]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (kind, phase): dataclasses.asdict(trained(kind, mode, phase, depth=3)) for kind, phase in RUNS if kind in kinds
    }


def assert_same_bits(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for rank, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        for case in theirs:
            assert mine[case] == theirs[case], (rank, case)


def test_semi_is_stale_training_written_by_hand_on_one_rank(one_rank: torch.device) -> None:
    assert_same_bits([_all_runs("semi", KINDS)], [_all_runs("by_hand", KINDS)])


def test_semi_is_stale_training_written_by_hand_on_two_ranks(two_ranks: Ranks) -> None:
    assert_same_bits(two_ranks(_all_runs, "semi", KINDS), two_ranks(_all_runs, "by_hand", KINDS))


def test_semi_is_stale_training_written_by_hand_on_four_ranks(four_ranks: Ranks) -> None:
    assert_same_bits(four_ranks(_all_runs, "semi", KINDS), four_ranks(_all_runs, "by_hand", KINDS))


def test_exact_is_sync_on_one_rank(one_rank: torch.device) -> None:
    assert_same_bits([_all_runs("exact", ("ours",))], [_all_runs("sync", ("ours",))])


def test_exact_is_sync_on_two_ranks(two_ranks: Ranks) -> None:
    assert_same_bits(two_ranks(_all_runs, "exact", ("ours",)), two_ranks(_all_runs, "sync", ("ours",)))


def test_exact_is_sync_on_four_ranks(four_ranks: Ranks) -> None:
    assert_same_bits(four_ranks(_all_runs, "exact", ("ours",)), four_ranks(_all_runs, "sync", ("ours",)))


def test_staleness_shows(one_rank: torch.device) -> None:
    """Without ids that consecutive batches share, the tests above would pass whatever was read."""
    for kind in KINDS:
        semi, sync = trained(kind, "semi", "adapting"), trained(kind, "sync", "adapting")
        assert semi.losses[:1] == sync.losses[:1]
        assert semi.losses[1:] != sync.losses[1:]
        assert semi.rows != sync.rows


@pytest.mark.parametrize("depth", [1, 2, 2 * NUM_BATCHES])
def test_frozen_lookups_are_exact_at_any_depth(one_rank: torch.device, depth: int) -> None:
    for kind in KINDS:
        assert trained(kind, "semi", "frozen", depth) == trained(kind, "sync", "frozen")


class Recording:
    """Plain tables that say what was asked of them."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.said: list[str] = []
        self._tables = PlainTables({"user": torch.ones(11, 4), "pin": torch.ones(17, 4)})
        self._fails_at, self._number = fails_at, 0

    def send(self, ids: Ids) -> tuple[int, Ids]:
        self.said.append(f"send {self._number}")
        self._number += 1
        return self._number - 1, ids

    def read(self, sent: tuple[int, Ids], *, adapting: bool) -> dict[str, torch.Tensor]:
        number, ids = sent
        self.said.append(f"read {number}")
        if number == self._fails_at:
            raise OSError("the link is down")
        rows = self._tables.read(ids, adapting=False)
        return {site: values.clone().requires_grad_(adapting) for site, values in rows.items()}

    def settle(self) -> None:
        self.said.append("update")


def steps_of(lookup: Any, mode: Any, adapts: Any = lambda number: True, **settings: Any) -> list[str]:
    forward = PrefetchingForward(lookup, mode=mode, device=CPU, **settings)
    network = Network()
    for step in forward.steps(Lookahead(make_batches(number=4), plain), adapts=adapts):
        network.step(step.rows)
    said: list[str] = lookup.said
    return said


def test_the_order_on_the_lane(one_rank: torch.device) -> None:
    """Update B-1, the read of B+1, the ids of B+2: what the module promises."""
    assert steps_of(Recording(), "semi") == [
        *("send 0", "read 0", "send 1", "read 1", "send 2"),
        *("update", "read 2", "send 3"),
        *("update", "read 3", "update", "update"),
    ]
    assert steps_of(Recording(), "sync") == [
        *("send 0", "read 0", "update", "send 1", "read 1", "update", "send 2", "read 2", "update"),
        *("send 3", "read 3", "update"),
    ]


def test_frozen_reads_run_as_far_ahead_as_asked(one_rank: torch.device) -> None:
    said = steps_of(Recording(), "semi", lambda number: False, depth=2)
    assert said[:6] == ["send 0", "read 0", "send 1", "read 1", "send 2", "read 2"]
    assert "update" not in said


def test_nothing_is_read_across_a_thaw_or_a_freeze(one_rank: torch.device) -> None:
    said = steps_of(Recording(), "semi", lambda number: number == 2)
    assert said.index("read 2") > said.index("read 1")
    assert said.index("read 3") > said.index("update")
    assert said.count("update") == 1


def test_a_pass_leaves_nothing_to_the_next(one_rank: torch.device) -> None:
    """A loop that breaks off, too: its batches' rows are dropped, its last step's gradients stay behind."""
    lookup = Recording()
    forward = PrefetchingForward(lookup, mode="semi", device=CPU)
    network = Network()
    for step in forward.steps(Lookahead(make_batches(number=4), plain)):
        network.step(step.rows)
        break
    second = make_batches(first=9, number=2)
    seen = []
    for step in forward.steps(Lookahead(second, plain)):
        seen.append(step.batch)
        assert len(step.rows["user"]) == len(step.ids["user"])
        network.step(step.rows)
    assert [id(batch) for batch in seen] == [id(batch) for batch in second]
    assert lookup.said.count("update") == 2


@pytest.mark.parametrize("mode", ["sync", "semi"])
def test_a_lookup_s_error_names_its_batch(one_rank: torch.device, mode: str) -> None:
    with pytest.raises(OSError, match="the link is down") as caught:
        steps_of(Recording(fails_at=2), mode)
    assert caught.value.__notes__ == ["in the lookup of batch 2 of this pass (counted from 0)"]


def test_after_an_error_nothing_more_is_done(one_rank: torch.device) -> None:
    lookup = Recording(fails_at=2)
    with pytest.raises(OSError):
        steps_of(lookup, "semi")
    assert lookup.said[-1] == "read 2"


def test_exact_needs_a_lookup_that_refreshes(one_rank: torch.device) -> None:
    with pytest.raises(ValueError, match="mode 'exact' needs a lookup that can refresh, which PlainTables cannot"):
        PrefetchingForward(PlainTables({}), mode="exact", device=CPU)


def test_the_evidence_adds_up(one_rank: torch.device) -> None:
    lookup = make_lookup("ours")
    network = Network()
    found = {}
    for mode in ("sync", "semi"):
        forward = PrefetchingForward(lookup, mode=mode, device=CPU)
        for step in forward.steps(Lookahead(make_batches(), plain)):
            network.step(step.rows)
        found[mode] = forward.take_evidence()
        assert forward.take_evidence().num_steps == 0
    assert found["sync"].num_steps == found["semi"].num_steps == NUM_BATCHES
    assert found["sync"].exposed_s == found["sync"].lookup_s > 0
    assert found["sync"].hidden_share == 0.0
    assert 0.0 <= found["semi"].hidden_share <= 1.0


def test_a_lane_s_thread_ends_with_it() -> None:
    before = threading.active_count()
    lane = ThreadLane(CPU)
    assert lane.wait(lane.submit(lambda: 3)) == 3
    assert threading.active_count() == before + 1
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "lookup-lane"][-1:]
    del lane
    gc.collect()
    thread.join(timeout=30)
    assert not thread.is_alive()
