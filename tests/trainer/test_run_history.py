"""A history fed by hand."""

import math
from functools import cache

import pytest
import torch

from tests.trainer import tiny
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.run_history import RunHistory


@cache
def batch() -> Batch:
    return next(SlateReader(tiny.columns(), batch_rows=16, seed=0).in_order())


def fed(losses: list[list[float]], *, adapting: list[bool] | None = None) -> RunHistory:
    """A history of passes with these losses, a step each."""
    history = RunHistory([len(of_pass) for of_pass in losses], title="test", is_shown=False)
    for epoch, of_pass in enumerate(losses):
        history.begin_epoch()
        for step, loss in enumerate(of_pass):
            values = {"head": torch.tensor(loss), "pairwise": torch.tensor(0.5)}
            is_adapting = adapting[epoch] if adapting else True
            history.step(epoch + step / len(of_pass), batch(), values, adapting=is_adapting)
        history.end_epoch(
            heldout={"save_auc": 0.6},
            canary={"self_influence": 0.0},
            lookup={"exposed_s": 0.1, "hidden_share": 0.5},
            reader_wait_s=0.01,
        )
    return history


def test_a_pass_is_the_mean_of_its_steps() -> None:
    history = fed([[1.0, 2.0], [3.0, 5.0]], adapting=[False, True])
    assert [record.loss for record in history.epochs] == [2.0, 4.5]
    assert [record.losses["head"] for record in history.epochs] == [1.5, 4.0]
    assert [record.phase for record in history.epochs] == ["frozen", "adapting"]
    one = batch().num_lookups
    assert [record.num_row_gradients for record in history.epochs] == [0, 2 * one]
    assert one == 2 * len(batch().user_ids_B) + len(batch().history_ids_N)


def test_the_loss_s_jump_is_from_a_pass_s_last_point_to_the_next_s_first() -> None:
    history = fed([[1.5, 3.5], [1.5, 0.5], [0.0, 9.0]])
    assert [record.canary["loss_jump"] for record in history.epochs] == pytest.approx([0.0, 2 / 4 - 1, 0.5 / 1.0 - 1])


@pytest.mark.parametrize("num_steps", [13, 14, 15, 44])
def test_points_of_a_pass_lie_within_it_whatever_sums_round_to(num_steps: int) -> None:
    """2 + 12 / 13 + 1 / 13 is more than 3 in floating point."""
    history = fed([[float(epoch)] * num_steps for epoch in range(4)])
    for epoch in range(4):
        points = [point for point in history.curve if epoch < point.epoch <= epoch + 1]
        assert {point.loss for point in points} == {epoch + 0.5}
    assert history.epochs[3].canary["loss_jump"] == pytest.approx(3.5 / 2.5 - 1)


def test_a_curve_has_about_twenty_points_a_pass() -> None:
    history = fed([[1.0] * 100])
    assert len(history.curve) == 20
    assert history.curve[-1].epoch == 1.0


def test_a_history_that_goes_on_equals_one_that_never_stopped() -> None:
    losses = [[1.0, 2.0], [3.0, 4.0]]
    whole, first = fed(losses), fed(losses[:1])
    resumed = RunHistory([2, 2], title="test", is_shown=False)
    resumed.resume(first.epochs, first.curve)
    resumed.begin_epoch()
    for step, loss in enumerate(losses[1]):
        values = {"head": torch.tensor(loss), "pairwise": torch.tensor(0.5)}
        resumed.step(1 + step / 2, batch(), values, adapting=True)
    resumed.end_epoch(
        heldout={"save_auc": 0.6},
        canary={"self_influence": 0.0},
        lookup={"exposed_s": 0.1, "hidden_share": 0.5},
        reader_wait_s=0.01,
    )
    assert resumed.curve == whole.curve
    assert [record.loss for record in resumed.epochs] == [record.loss for record in whole.epochs]
    assert resumed.epochs[1].canary == whole.epochs[1].canary
    assert first.curve == whole.curve[: len(first.curve)], "what it went on from stays as it was"
    assert math.isclose(resumed.to_dict()["num_steps"], 4)
