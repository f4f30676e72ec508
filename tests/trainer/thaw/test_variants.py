from typing import get_args

import pytest

from tests.trainer import tiny
from trainer.errors import InputError
from trainer.recipe import Arm
from trainer.thaw.variants import recipe_of


@pytest.mark.parametrize("arm", get_args(Arm))
def test_every_arm_is_a_word_by_itself(arm: str) -> None:
    assert recipe_of(tiny.recipe(), arm) == tiny.recipe({"thaw.arm": arm})


@pytest.mark.parametrize(
    ("word", "settings"),
    [
        ("delayed*3", {"thaw.num_epochs": "3"}),
        ("delayed@1.5", {"groups.tables.thaw_point": "1.5"}),
        ("delayed@0", {"groups.tables.thaw_point": "0"}),
        ("frequency_thaw*3@2", {"thaw.arm": "frequency_thaw", "thaw.num_epochs": "3", "groups.tables.thaw_point": "2"}),
        ("cotrain+guard", {"thaw.arm": "cotrain", "guard.refreeze": "true"}),
        (
            "delayed*4@2.25+guard",
            {"thaw.num_epochs": "4", "groups.tables.thaw_point": "2.25", "guard.refreeze": "true"},
        ),
    ],
)
def test_settings_follow_the_arm(word: str, settings: dict[str, str]) -> None:
    assert recipe_of(tiny.recipe({"thaw.arm": "delayed"}), word) == tiny.recipe({"thaw.arm": "delayed", **settings})


def refusal(word: str) -> str:
    with pytest.raises(InputError) as caught:
        recipe_of(tiny.recipe(), word)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "word",
    [
        *("", "thawed", "Delayed", "delayed ", "delayed*", "delayed*x", "delayed*1.5", "delayed@", "delayed@.5"),
        *("delayed@-1", "delayed@1*2", "delayed+guard*2", "delayed+", "delayed+guard+guard", "*2", "delayed,cotrain"),
    ],
)
def test_a_word_that_is_none_lists_the_arms_and_the_form(word: str) -> None:
    message = refusal(word)
    assert message.startswith(f"arm '{word}': unknown; choose of single_epoch, cotrain, ")
    assert message.endswith("as NAME[*PASSES][@THAW][+guard]")


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("cotrain@1", "groups.tables: thaw_point and freeze_point belong to arm 'delayed', not 'cotrain'"),
        ("delayed@2", "groups.tables.thaw_point 2.0 lies beyond the last of 2 epochs"),
        ("delayed*0", "thaw.num_epochs"),
    ],
)
def test_a_setting_that_does_not_fit_its_arm_is_told_by_the_recipe(word: str, words: str) -> None:
    assert words in refusal(word)
