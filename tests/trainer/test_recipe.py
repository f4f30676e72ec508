import json
import subprocess
import sys
from dataclasses import asdict, fields, is_dataclass
from typing import Any, get_args

import pytest

from trainer.errors import InputError
from trainer.recipe import (
    Arm,
    LogsConfig,
    LossesConfig,
    ModelConfig,
    Recipe,
    TablesConfig,
    ThawConfig,
)


def recipe() -> Recipe:
    return Recipe(
        name="test",
        logs=LogsConfig(uri="logs", labels=("save", "click"), num_user_features=2, num_pin_features=3),
        tables=TablesConfig(num_user_rows=10, num_pin_rows=20, dim=8),
        model=ModelConfig(num_attention_heads=2, hidden_sizes=(8, 4)),
        losses=LossesConfig(head_weights=(1.0, 0.5)),
        thaw=ThawConfig(arm="delayed", num_epochs=3, thaw_point=1.5, state="keep"),
    )


def leaves(node: Any, prefix: str = "") -> list[str]:
    """Dotted names of all fields that are no sections."""
    names = []
    for field in fields(node):
        value = getattr(node, field.name)
        dotted = f"{prefix}{field.name}"
        names += leaves(value, f"{dotted}.") if is_dataclass(value) else [dotted]
    return names


# A valid value for each field that differs from the one above.
OTHER = {
    "name": "other",
    "logs.uri": "elsewhere",
    "logs.labels": "[save, hide]",
    "logs.num_user_features": "7",
    "logs.num_pin_features": "7",
    "tables.num_user_rows": "11",
    "tables.num_pin_rows": "21",
    "tables.dim": "6",
    "tables.hash_seed": "9",
    "tables.learning_rate": "0.5",
    "window.num_days": "33",
    "window.shuffle_seed": "99",
    "backbone.num_days": "33",
    "backbone.num_epochs": "33",
    "model.history_length": "33",
    "model.num_transformer_layers": "33",
    "model.num_attention_heads": "4",
    "model.num_cross_layers": "33",
    "model.hidden_sizes": "[9]",
    "model.dropout": "0.35",
    "losses.head_weights": "[0.25, 0.75]",
    "losses.pairwise_weight": "0.77",
    "losses.contrastive_weight": "0.77",
    "losses.temperature": "0.77",
    "thaw.arm": "frozen",
    "thaw.num_epochs": "4",
    "thaw.thaw_point": "0.25",
    "thaw.state": "restore",
    "training.num_ranks": "33",
    "training.batch_rows": "77",
    "training.learning_rate": "0.77",
    "training.seed": "77",
    "evaluation.hit_k": "33",
    "evaluation.num_bootstrap": "77",
    "evaluation.confidence": "0.77",
    "evaluation.seed": "77",
    "gate.min_save_lift_low": "-0.5",
    "gate.min_auc_low": "0.77",
    "gate.calibration_range": "[0.5, 1.5]",
}


def changed(name: str) -> Recipe:
    settings = {name: OTHER[name]}
    if name == "thaw.arm":
        settings["thaw.thaw_point"] = "null"  # it belongs to the arm `delayed`
    return recipe().override(settings)


@pytest.mark.parametrize("name", leaves(recipe()))
def test_every_field_travels_and_is_part_of_the_digest(name: str) -> None:
    assert name in OTHER, "add a value for the new field"
    other = changed(name)
    node: Any = other
    for part in name.split("."):
        node = getattr(node, part)
    kept: Any = recipe()
    for part in name.split("."):
        kept = getattr(kept, part)
    assert node != kept
    assert Recipe.from_json(other.to_json()) == other
    assert other.digest != recipe().digest


def test_digests_differ_from_each_other_and_stay() -> None:
    digests = [changed(name).digest for name in OTHER]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)
    assert recipe().digest == Recipe.from_json(recipe().to_json()).digest
    # The order of keys in the JSON is not part of it.
    tree = asdict(recipe())
    turned = dict(reversed(tree.items()))
    assert Recipe(**turned).digest == recipe().digest


def test_json_keeps_tuples_and_nothing() -> None:
    found = Recipe.from_json(recipe().override({"thaw.thaw_point": "null"}).to_json())
    assert found.thaw.thaw_point is None
    assert found.model.hidden_sizes == (8, 4)
    assert hash(found) != hash(recipe())


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(InputError) as caught:
        recipe().override(settings)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("recipe 'test':")
    return message


@pytest.mark.parametrize(
    "dotted", ["nothing", "window.nothing", "nothing.num_days", "window", "window.num_days.deep", ""]
)
def test_a_field_that_is_not_there_is_named(dotted: str) -> None:
    assert f"no field '{dotted}'" in refusal({dotted: "1"})


@pytest.mark.parametrize(
    ("dotted", "text"),
    [
        ("logs.num_user_features", "0"),
        ("tables.dim", "-1"),
        ("tables.learning_rate", "0"),
        ("window.num_days", "0"),
        ("window.num_days", "ten"),
        ("window.num_days", "1.5"),
        ("backbone.num_epochs", "0"),
        ("model.dropout", "1.0"),
        ("model.dropout", "-0.1"),
        ("model.hidden_sizes", "[8, 0]"),
        ("losses.head_weights", "[1.0, -0.5]"),
        ("losses.temperature", "0"),
        ("thaw.arm", "thawed"),
        ("thaw.state", "forget"),
        ("thaw.thaw_point", "-1"),
        ("training.num_ranks", "0"),
        ("training.seed", "[1]"),
        ("evaluation.confidence", "1"),
        ("gate.min_auc_low", "0"),
        ("gate.calibration_range", "[0.8]"),
        ("logs.uri", "null"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_field(dotted: str, text: str) -> None:
    assert dotted in refusal({dotted: text})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"logs.labels": "[click, save]"}, "labels must begin with 'save'"),
        ({"logs.labels": "[]"}, "labels must begin with 'save'"),
        ({"logs.labels": "[save, save]"}, "labels must differ"),
        ({"losses.head_weights": "[1.0]"}, "losses.head_weights has 1 values for 2 logs.labels"),
        ({"model.num_attention_heads": "3"}, "model.num_attention_heads must divide twice tables.dim"),
        ({"thaw.thaw_point": "3.0"}, "thaw_point 3.0 lies beyond the last of 3 epochs"),
        ({"thaw.arm": "cotrain"}, "thaw_point belongs to arm 'delayed', not 'cotrain'"),
    ],
)
def test_fields_that_do_not_fit_together_are_named(settings: dict[str, str], words: str) -> None:
    assert words in refusal(settings)


def test_text_that_is_no_value_is_refused() -> None:
    assert "model.hidden_sizes" in refusal({"model.hidden_sizes": "[8, 4"})


@pytest.mark.parametrize("change", [{"surprise": 1}, {"logs": {"uri": "logs"}}, {"window": {"days": 3}}])
def test_json_with_unknown_or_missing_keys_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="recipe 'test': "):
        Recipe.from_json(json.dumps({**asdict(recipe()), **change}))


def test_every_arm_can_be_named() -> None:
    for arm in get_args(Arm):
        assert recipe().override({"thaw.arm": arm, "thaw.thaw_point": "null"}).thaw.arm == arm


def test_registered_names_follow_the_recipe_s() -> None:
    assert recipe().model_name == "thawline-test"
    assert recipe().backbone_name == "thawline-test-backbone"


def test_a_recipe_cannot_be_changed_in_place() -> None:
    training: Any = recipe().training
    with pytest.raises(AttributeError):
        training.seed = 3


def test_recipes_need_no_torch() -> None:
    code = "import sys, trainer.recipe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
