import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.columns import Columns
from trainer.batches.reader import SlateReader
from trainer.batches.slates import Ints, slate_starts

BATCH_ROWS = 16


@pytest.fixture(scope="module")
def columns() -> Columns:
    """Rows whose first pin feature is their own number, so that a batch tells which rows it holds."""
    found = tiny.columns(num_slates=40)
    numbers = np.arange(found.num_rows, dtype=np.float32)
    return replace(found, pin_features=np.column_stack([numbers, found.pin_features[:, 1:]]))


def reader(
    columns: Columns, *, seed: int = 1, rank: int = 0, num_ranks: int = 1, batch_rows: int = BATCH_ROWS
) -> SlateReader:
    return SlateReader(columns, batch_rows=batch_rows, seed=seed, rank=rank, num_ranks=num_ranks)


def rows_of(batch: Batch) -> list[int]:
    return [int(value) for value in batch.pin_features_BP[:, 0]]


def steps(batches: Iterable[Batch]) -> list[list[int]]:
    return [rows_of(batch) for batch in batches]


def flat(parts: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(parts))


def test_an_epoch_holds_every_row_once(columns: Columns) -> None:
    for epoch in range(3):
        seen = flat(steps(reader(columns).epoch(epoch)))
        assert sorted(seen) == list(range(columns.num_rows))


def test_slates_stay_whole_and_in_the_order_of_their_rows(columns: Columns) -> None:
    for batch in reader(columns).epoch(0):
        rows = rows_of(batch)
        requests = columns.request_id[rows].tolist()
        runs = [request for place, request in enumerate(requests) if place == 0 or requests[place - 1] != request]
        assert len(runs) == len(set(runs))
        for request in runs:
            found = [row for row in rows if columns.request_id[row] == request]
            assert found == np.flatnonzero(columns.request_id == request).tolist()
        # slates_B says the same as the requests do, within the batch.
        same = batch.slates_B.unsqueeze(1) == batch.slates_B
        assert torch.equal(same, torch.tensor(np.equal.outer(requests, requests)))


def test_a_step_takes_the_slates_that_begin_within_its_rows(columns: Columns) -> None:
    batches = list(reader(columns).epoch(0))
    begins = 0
    for step, batch in enumerate(batches):
        sizes = Counter(batch.slates_B.tolist())
        for slate in sorted(sizes):
            assert begins // BATCH_ROWS == step
            begins += sizes[slate]
        assert batch.num_step_rows == len(batch.user_ids_B)


def test_each_epoch_and_each_seed_has_an_order_of_its_own(columns: Columns) -> None:
    orders = [tuple(flat(steps(reader(columns, seed=seed).epoch(epoch)))) for seed in (1, 2) for epoch in (0, 1, 2)]
    assert len(set(orders)) == len(orders)
    assert tuple(range(columns.num_rows)) not in orders
    assert tuple(flat(steps(reader(columns, seed=1).epoch(2)))) == orders[2]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("batch_rows", [1, 16, 50])
def test_ranks_share_the_steps_of_one_rank(columns: Columns, num_ranks: int, batch_rows: int) -> None:
    alone = reader(columns, batch_rows=batch_rows)
    ranks = [reader(columns, batch_rows=batch_rows, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    for epoch in range(2):
        whole = list(alone.epoch(epoch))
        assert {len(whole)} == {each.num_steps(epoch) for each in [alone, *ranks]}
        parts = [list(each.epoch(epoch)) for each in ranks]
        assert {len(batches) for batches in parts} == {len(whole)}
        for step, batch in enumerate(whole):
            mine = [rows_of(batches[step]) for batches in parts]
            assert sorted(flat(mine)) == sorted(rows_of(batch))
            assert {batches[step].num_step_rows for batches in parts} == {batch.num_step_rows}
            requests = [set(columns.request_id[rows].tolist()) for rows in mine]
            assert sum(map(len, requests)) == len(set().union(*requests)), "a slate was split"


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_in_order_yields_the_rows_that_it_names(columns: Columns, num_ranks: int) -> None:
    ranks = [reader(columns, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    named = [each.rows_of_rank().tolist() for each in ranks]
    assert [flat(steps(each.in_order())) for each in ranks] == named
    assert sorted(flat(named)) == list(range(columns.num_rows))
    if num_ranks == 1:
        assert named[0] == sorted(named[0])


def test_log_q_is_the_share_of_a_pin_among_the_rows_trained_on(columns: Columns) -> None:
    counts = Counter(columns.pin_id.tolist())
    for batch in reader(columns).epoch(0):
        wanted = [math.log(counts[pin] / columns.num_rows) for pin in batch.pin_ids_B.tolist()]
        assert batch.log_q_B.tolist() == pytest.approx(wanted, rel=1e-6)


def first_order(
    columns: Columns, *, batch_rows: int, seed: int, epoch: int, rank: int, num_ranks: int, slates: Ints
) -> list[tuple[list[int], int]]:
    """Each step's rows on a rank, and its rows on all, as this project's first reader had them.

    Results that are published depend on that order; it may change for windows that are larger than memory only.
    """
    starts = slate_starts(columns.request_id)
    sizes = np.diff(starts)
    order = slates[np.random.default_rng([seed, epoch]).permutation(len(slates))]
    step = (np.cumsum(sizes[order]) - sizes[order]) // batch_rows
    edges = np.append(np.flatnonzero(np.diff(step, prepend=-1)), len(order))
    found = []
    for begin, end in pairwise(edges):
        mine = order[begin:end][rank::num_ranks]
        rows = [row for slate in mine for row in range(starts[slate], starts[slate + 1])]
        found.append((rows, int(sizes[order[begin:end]].sum())))
    return found


@settings(max_examples=100, deadline=None)
@given(
    num_slates=st.integers(1, 60),
    batch_rows=st.integers(1, 60),
    seed=st.integers(0, 5),
    epoch=st.integers(0, 3),
    num_ranks=st.integers(1, 4),
    is_all=st.booleans(),
)
def test_rows_in_memory_are_read_in_the_order_that_published_results_were_made_with(
    num_slates: int, batch_rows: int, seed: int, epoch: int, num_ranks: int, is_all: bool
) -> None:
    columns = tiny.columns(num_slates=num_slates)
    _, which, counts = np.unique(columns.pin_id, return_inverse=True, return_counts=True)
    log_q = np.log(counts[which] / len(columns.pin_id)).astype(np.float32)
    slates = np.arange(num_slates)[:: 1 if is_all else 2]
    for rank in range(num_ranks):
        found = list(
            SlateReader(
                columns,
                batch_rows=batch_rows,
                seed=seed,
                rank=rank,
                num_ranks=num_ranks,
                slates=None if is_all else slates,
            ).epoch(epoch)
        )
        wanted = first_order(
            columns, batch_rows=batch_rows, seed=seed, epoch=epoch, rank=rank, num_ranks=num_ranks, slates=slates
        )
        assert len(found) == len(wanted)
        for batch, (rows, num_step_rows) in zip(found, wanted, strict=True):
            assert batch.num_step_rows == num_step_rows
            assert torch.equal(batch.pin_ids_B, torch.from_numpy(columns.pin_id[rows]))
            assert torch.equal(batch.pin_features_BP, torch.from_numpy(columns.pin_features[rows]))
            assert torch.equal(batch.labels_BH, torch.from_numpy(columns.labels[rows]))
            assert torch.equal(batch.log_q_B, torch.from_numpy(log_q[rows]))
            assert not rows or batch.history_ids_N.tolist() == list(
                chain.from_iterable(
                    columns.history[columns.history_starts[row] : columns.history_starts[row + 1]] for row in rows
                )
            )
            assert torch.equal(batch.weights_B, torch.ones(len(rows)))


def test_slates_begin_where_the_request_changes() -> None:
    assert slate_starts(np.array([0, 0, 5, 5, 5, 2])).tolist() == [0, 2, 5, 6]
    assert slate_starts(np.array([7])).tolist() == [0, 1]
