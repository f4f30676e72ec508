"""Runs that share passes equal runs that make them all, to the bit; what differs is never shared."""

from collections.abc import Mapping

import pytest

from tests.trainer import tiny
from tests.trainer.tiny_runs import (
    MEMORABLE,
    assert_same_bits,
    memorable,
    memorable_backbone,
    trained,
)
from trainer import runs
from trainer.loop import fit_epoch
from trainer.model.backbone import Backbone
from trainer.recipe import Recipe
from trainer.runs import Passes
from trainer.thaw.variants import recipe_of

WITH_DROPOUT = {"model.dropout": "0.3"}


class Made:
    """Counts the passes that runs really make."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0

        def count(*args: object, **named: object) -> None:
            self.number += 1
            fit_epoch(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(runs, "fit_epoch", count)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(monkeypatch)


def variant(word: str, settings: Mapping[str, str] | None = None) -> Recipe:
    return recipe_of(tiny.recipe({**WITH_DROPOUT, **(settings or {})}), word)


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("single_epoch", "cotrain", 1),
        ("frozen", "delayed", 1),
        ("frozen", "delayed*3", 1),
        ("cotrain", "adapt_then_freeze", 1),
        ("cotrain", "meda", 1),
        ("adam_ar", "adam_ar*3", 1),
        ("cotrain", "row_dropout", 2),
        ("cotrain", "contrastive_only", 2),
        ("frequency_thaw", "min_count", 2),
    ],
)
def test_an_arm_after_another_equals_the_arm_alone(
    tiny_backbone: Backbone, made: Made, first: str, second: str, wanted: int
) -> None:
    """``wanted`` is the number of passes that the second arm makes itself."""
    passes: Passes = {}
    trained(variant(first), tiny_backbone, passes=passes)
    made.number = 0
    shared = trained(variant(second), tiny_backbone, passes=passes)
    assert made.number == wanted
    assert_same_bits(shared, trained(variant(second), tiny_backbone))


def test_a_guarded_arm_shares_the_pass_before_its_guard_acts(one_rank: object, made: Made) -> None:
    guard = {**MEMORABLE, "model.dropout": "0", "guard.max_self_influence": "0.01"}
    passes: Passes = {}
    free, guarded = variant("cotrain", guard), variant("cotrain+guard", guard)
    trained(free, memorable_backbone(), memorable(), passes)
    made.number = 0
    shared = trained(guarded, memorable_backbone(), memorable(), passes)
    assert made.number == 1
    assert shared.history.refrozen_at == 1
    assert_same_bits(shared, trained(guarded, memorable_backbone(), memorable()))
    made.number = 0
    again = trained(guarded, memorable_backbone(), memorable(), passes)
    assert made.number == 0, "every pass is found"
    assert_same_bits(again, shared)


def test_arms_whose_tables_decay_to_different_ends_share_no_pass(tiny_backbone: Backbone, made: Made) -> None:
    decay = {"groups.tables.decay": "linear"}
    passes: Passes = {}
    trained(variant("cotrain", decay), tiny_backbone, passes=passes)
    made.number = 0
    shared = trained(variant("adapt_then_freeze", decay), tiny_backbone, passes=passes)
    assert made.number == 2
    assert_same_bits(shared, trained(variant("adapt_then_freeze", decay), tiny_backbone))


def test_kept_passes_are_copies(tiny_backbone: Backbone, made: Made) -> None:
    """A run that goes on from a pass leaves it as it was for the next."""
    passes: Passes = {}
    trained(variant("single_epoch"), tiny_backbone, passes=passes)
    first = trained(variant("cotrain"), tiny_backbone, passes=dict(passes))
    second = trained(variant("cotrain"), tiny_backbone, passes=dict(passes))
    assert_same_bits(second, first)
