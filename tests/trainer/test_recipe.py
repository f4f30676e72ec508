import json
import subprocess
import sys
from dataclasses import asdict, fields, is_dataclass
from typing import Any, get_args

import pytest

from trainer.errors import InputError
from trainer.recipe import (
    Arm,
    GroupConfig,
    GroupsConfig,
    LogsConfig,
    LossesConfig,
    ModelConfig,
    Recipe,
    RemedyArm,
    RouteArm,
    TablesConfig,
    ThawConfig,
    VlmConfig,
)


def recipe() -> Recipe:
    return Recipe(
        name="test",
        logs=LogsConfig(uri="logs", labels=("save", "click"), num_user_features=2, num_pin_features=3),
        tables=TablesConfig(num_user_rows=10, num_pin_rows=20, dim=8),
        model=ModelConfig(num_attention_heads=2, hidden_sizes=(8, 4)),
        losses=LossesConfig(head_weights=(1.0, 0.5)),
        vlm=VlmConfig(encoder="builtin"),
        thaw=ThawConfig(arm="delayed", num_epochs=3, state="keep"),
        groups=GroupsConfig(tables=GroupConfig(learning_rate=0.02, thaw_point=1.5)),
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
    "window.num_days": "33",
    "window.shuffle_seed": "99",
    "window.num_shards": "33",
    "window.late_hours": "23",
    "window.negative_rate": "0.35",
    "window.max_quarantined_share": "0.35",
    "quality.on_breach": "stop",
    "quality.num_days": "33",
    "quality.min_trailing_days": "33",
    "quality.max_volume_ratio": "3.5",
    **{
        f"quality.max_{name}": "0.77"
        for name in (
            "label_change",
            "z",
            "psi",
            "mean_shift",
            "range_growth",
            "null_increase",
            "new_pin_change",
            "duplicate_increase",
            "quarantine_increase",
        )
    },
    "quality.max_empty_hours": "33",
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
    "vlm.encoder": "huggingface",
    "vlm.path": "elsewhere",
    "vlm.image_pixels": "64",
    "vlm.patch_pixels": "4",
    "vlm.num_tokens": "33",
    "vlm.num_words": "33",
    "vlm.width": "33",
    "vlm.num_layers": "0",
    "vlm.cache_mib": "33",
    "thaw.arm": "frozen",
    "thaw.num_epochs": "4",
    "thaw.state": "restore",
    **{
        f"thaw.routes.{loss}.{path}": "0.25"
        for loss in ("head", "pairwise", "contrastive")
        for path in ("candidate", "history", "user")
    },
    "remedies.full_rate_count": "33",
    "remedies.rate_power": "0.77",
    "remedies.interval_decay": "0.77",
    "remedies.table_rate_scale": "0.77",
    "remedies.row_dropout": "0.77",
    "remedies.row_decay": "0.77",
    "remedies.min_count": "33",
    "remedies.frequent_count": "33",
    "remedies.frequent_thaw_point": "0.77",
    "guard.num_rows": "33",
    "guard.refreeze": "true",
    "guard.max_self_influence": "0.77",
    **{
        f"groups.{group}.{field}": value
        for group in ("tables", "network", "vlm")
        for field, value in (
            ("learning_rate", "0.77"),
            ("thaw_point", "0.25"),
            ("freeze_point", "2.25"),
            ("warmup_epochs", "0.77"),
            ("decay", "cosine"),
        )
    },
    "training.num_ranks": "33",
    "training.batch_rows": "77",
    "training.num_micro_batches": "33",
    "training.profile_steps": "33",
    "training.shuffle_rows": "33",
    "lookup.mode": "exact",
    "lookup.frozen_depth": "33",
    "lookup.precision": "bf16",
    "training.seed": "77",
    "evaluation.hit_k": "33",
    "evaluation.num_bootstrap": "77",
    "evaluation.confidence": "0.77",
    "evaluation.seed": "77",
    "gate.min_save_lift_low": "-0.5",
    "gate.min_auc_low": "0.77",
    "gate.calibration_range": "[0.5, 1.5]",
    "cluster.num_nodes": "3",
    "cluster.runtime": "thawline-trainer-backfill",
    "cluster.accelerator": "nvidia.com/gpu",
    "cluster.node_labels": "[gpu=h200]",
    "cluster.tolerations": "['nvidia.com/gpu:NoSchedule']",
    "cluster.shm_gib": "0.5",
    **{
        f"cluster.{kind}.{field}": value
        for kind in ("lookups", "data", "training", "scoring")
        for field, value in (("num_cpus", "0.5"), ("max_cpus", "33"), ("memory_gib", "33"), ("timeout_s", "33"))
    },
    "cluster.num_retries": "0",
    "cluster.retry_after_s": "33",
    "cluster.data_image": "data@sha256:0",
    "cluster.trainer_image": "trainer@sha256:0",
    "cluster.store": "/elsewhere",
    "cluster.claim": "elsewhere",
    "cluster.tracking_uri": "http://elsewhere",
    "cluster.service_account": "other",
    "schedule.cron": "30 */6 1-7,15 * 1",
    "schedule.time_zone": "Asia/Kolkata",
}

# Where and when a run takes place leaves what it trains as it is.
PLACE_AND_TIME = ("cluster.", "schedule.")


# Fields that hold each other's hands.
TOGETHER = {
    "thaw.arm": {"groups.tables.thaw_point": "null"},
    "vlm.encoder": {"vlm.path": "a"},
    "vlm.path": {"vlm.encoder": "huggingface"},
    "cluster.num_nodes": {"training.num_ranks": "3"},
}


def changed(name: str) -> Recipe:
    return recipe().override({**TOGETHER.get(name, {}), name: OTHER[name]})


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
    if not name.startswith(PLACE_AND_TIME):
        assert other.digest != recipe().digest
    elif name not in TOGETHER:
        assert other.digest == recipe().digest


def test_digests_differ_from_each_other_and_stay() -> None:
    digests = [changed(name).digest for name in OTHER if not name.startswith(PLACE_AND_TIME)]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)
    assert recipe().digest == Recipe.from_json(recipe().to_json()).digest
    # The order of keys in the JSON is not part of it.
    tree = asdict(recipe())
    turned = dict(reversed(tree.items()))
    assert Recipe(**turned).digest == recipe().digest


def test_json_keeps_tuples_and_nothing() -> None:
    found = Recipe.from_json(recipe().override({"groups.tables.thaw_point": "null"}).to_json())
    assert found.groups.tables.thaw_point is None
    assert found.groups.vlm.freeze_point is None
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
        ("groups.tables.learning_rate", "0"),
        ("groups.network.learning_rate", "-0.1"),
        ("groups.vlm.warmup_epochs", "-1"),
        ("groups.vlm.decay", "step"),
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
        ("thaw.routes.head.candidate", "-0.5"),
        ("thaw.routes.pairwise.user", "shut"),
        ("remedies.min_count", "0"),
        ("remedies.row_dropout", "1"),
        ("remedies.table_rate_scale", "1"),
        ("guard.num_rows", "0"),
        ("guard.refreeze", "perhaps"),
        ("guard.max_self_influence", "0"),
        ("groups.tables.thaw_point", "-1"),
        ("vlm.num_layers", "-1"),
        ("vlm.encoder", "large"),
        ("training.num_ranks", "0"),
        ("training.seed", "[1]"),
        ("evaluation.confidence", "1"),
        ("gate.min_auc_low", "0"),
        ("gate.calibration_range", "[0.8]"),
        ("logs.uri", "null"),
        ("cluster.num_nodes", "0"),
        ("cluster.shm_gib", "0"),
        ("cluster.data.memory_gib", "0"),
        ("cluster.training.timeout_s", "1.5"),
        ("cluster.num_retries", "-1"),
        ("cluster.accelerator", "[nvidia.com/gpu]"),
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
        ({"groups.tables.thaw_point": "3.0"}, "groups.tables.thaw_point 3.0 lies beyond the last of 3 epochs"),
        ({"thaw.arm": "cotrain"}, "thaw_point and freeze_point belong to arm 'delayed', not 'cotrain'"),
        (
            {"thaw.arm": "meda", "groups.tables.thaw_point": "null", "groups.tables.freeze_point": "1"},
            "thaw_point and freeze_point belong to arm 'delayed', not 'meda'",
        ),
        ({"groups.tables.freeze_point": "1.5"}, "freeze_point 1.5 is not after thaw_point 1.5"),
        ({"groups.network.freeze_point": "0"}, "freeze_point 0.0 is not after thaw_point 0.0"),
        (
            {"groups.tables.thaw_point": "null", "groups.tables.freeze_point": "2.0"},
            "groups.tables.freeze_point 2.0 is not after the thaw, at 2.0 epochs",
        ),
        ({"vlm.path": "somewhere"}, "path belongs to encoder 'huggingface', which needs it"),
        ({"vlm.encoder": "huggingface"}, "path belongs to encoder 'huggingface', which needs it"),
        ({"vlm.patch_pixels": "5"}, "patch_pixels must divide image_pixels"),
        ({"cluster.num_nodes": "2"}, "cluster.num_nodes must divide training.num_ranks"),
        ({"cluster.data.num_cpus": "3"}, "max_cpus 2.0 is below num_cpus 3.0"),
        ({"cluster.shm_gib": "6"}, "shm_gib 6.0 leaves nothing of training.memory_gib 6.0"),
        ({"cluster.shm_gib": "4"}, "shm_gib 4.0 leaves nothing of scoring.memory_gib 4.0"),
        ({"cluster.node_labels": "[gpu]"}, "'gpu' is no key=value"),
        ({"cluster.tolerations": "['nvidia.com/gpu']"}, "'nvidia.com/gpu' is no key[=value]:effect"),
        ({"cluster.store": "store"}, "store: 'store' is no absolute path"),
        ({"schedule.cron": "0 6 * *"}, "cron: '0 6 * *' has 4 fields"),
        ({"schedule.cron": "60 6 * * *"}, "cron: '60' is no minute of 0 to 59"),
        ({"schedule.cron": "0 6-2 * * *"}, "cron: '6-2' is no hour of 0 to 23"),
        ({"schedule.cron": "0 6 */0 * *"}, "cron: '*/0' is no day of month of 1 to 31"),
        ({"schedule.cron": "0 6 * 1-2-3 *"}, "cron: '1-2-3' is no month of 1 to 12"),
        ({"schedule.cron": "0 6 * * sun"}, "cron: 'sun' is no day of week of 0 to 6"),
        ({"schedule.time_zone": "''"}, "time_zone: '' is no name of a zone"),
        (
            {"schedule.cron": "0 */6 * * *", "schedule.time_zone": "Europe/Berlin"},
            "cron: '0 */6 * * *' names no one time of day, which a time_zone other than UTC needs",
        ),
    ],
)
def test_fields_that_do_not_fit_together_are_named(settings: dict[str, str], words: str) -> None:
    assert words in refusal(settings)


@pytest.mark.parametrize("arm", [*get_args(RouteArm), *get_args(RemedyArm)])
def test_arms_with_routes_of_their_own_take_no_others(arm: str) -> None:
    settings = {"thaw.arm": arm, "groups.tables.thaw_point": "null", "thaw.routes.head.user": "0"}
    assert f"thaw.routes: arm '{arm}' brings its own" in refusal(settings)


def test_frequency_thaw_takes_a_thaw_point_and_routes() -> None:
    found = recipe().override({"thaw.arm": "frequency_thaw", "thaw.routes.head.user": "0"})
    assert (found.thaw.routes.head.user, found.groups.tables.thaw_point) == (0.0, 1.5)


def test_text_that_is_no_value_is_refused() -> None:
    assert "model.hidden_sizes" in refusal({"model.hidden_sizes": "[8, 4"})


@pytest.mark.parametrize("change", [{"surprise": 1}, {"logs": {"uri": "logs"}}, {"window": {"days": 3}}])
def test_json_with_unknown_or_missing_keys_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="recipe 'test': "):
        Recipe.from_json(json.dumps({**asdict(recipe()), **change}))


def test_every_arm_can_be_named() -> None:
    for arm in get_args(Arm):
        assert recipe().override({"thaw.arm": arm, "groups.tables.thaw_point": "null"}).thaw.arm == arm


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
