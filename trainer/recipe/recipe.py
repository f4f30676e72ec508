"""The whole recipe: its sections put together, read, written and overridden."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from trainer.errors import InputError
from trainer.recipe.cluster import ClusterConfig, ScheduleConfig
from trainer.recipe.data import BackboneConfig, LogsConfig, WindowConfig
from trainer.recipe.judging import EvaluationConfig, GateConfig
from trainer.recipe.model import LossesConfig, ModelConfig, TablesConfig, VlmConfig
from trainer.recipe.quality import QualityConfig
from trainer.recipe.thaw import GuardConfig, RemediesConfig, RemedyArm, RouteArm, RoutesConfig, ThawConfig
from trainer.recipe.training import GroupsConfig, LookupConfig, TrainingConfig
from trainer.recipe.types import STRICT_KEYS

_PLACE_AND_TIME = ("cluster", "schedule")


@dataclass(frozen=True, kw_only=True, config=STRICT_KEYS)
class Recipe:
    """One run. Recipes by name are functions in ``pipelines/recipes.py``.

    Attributes:
        name: Names the registered model too: ``thawline-<name>``.
    """

    name: str
    logs: LogsConfig
    tables: TablesConfig
    window: WindowConfig = WindowConfig()
    quality: QualityConfig = QualityConfig()
    backbone: BackboneConfig = BackboneConfig()
    model: ModelConfig = ModelConfig()
    losses: LossesConfig = LossesConfig()
    vlm: VlmConfig = VlmConfig()
    thaw: ThawConfig = ThawConfig()
    remedies: RemediesConfig = RemediesConfig()
    guard: GuardConfig = GuardConfig()
    groups: GroupsConfig = GroupsConfig()
    training: TrainingConfig = TrainingConfig()
    lookup: LookupConfig = LookupConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    gate: GateConfig = GateConfig()
    cluster: ClusterConfig = ClusterConfig()
    schedule: ScheduleConfig = ScheduleConfig()

    def __post_init__(self) -> None:
        if len(self.losses.head_weights) != len(self.logs.labels):
            num_weights, num_labels = len(self.losses.head_weights), len(self.logs.labels)
            raise ValueError(f"losses.head_weights has {num_weights} values for {num_labels} logs.labels")
        if (2 * self.tables.dim) % self.model.num_attention_heads:
            raise ValueError("model.num_attention_heads must divide twice tables.dim")
        if self.training.num_ranks % self.cluster.num_nodes:
            raise ValueError("cluster.num_nodes must divide training.num_ranks")
        self._check_thaw()

    def _check_thaw(self) -> None:
        thaw, group = self.thaw, self.groups.tables
        if thaw.arm in (*get_args(RouteArm), *get_args(RemedyArm)) and thaw.routes != RoutesConfig():
            raise ValueError(f"thaw.routes: arm '{thaw.arm}' brings its own; set them with another arm")
        if (group.thaw_point, group.freeze_point) != (None, None) and thaw.arm not in ("delayed", "frequency_thaw"):
            raise ValueError(f"groups.tables: thaw_point and freeze_point belong to arm 'delayed', not '{thaw.arm}'")
        if group.thaw_point is not None and group.thaw_point >= thaw.num_epochs:
            raise ValueError(
                f"groups.tables.thaw_point {group.thaw_point} lies beyond the last of {thaw.num_epochs} epochs"
            )
        thaw_point = thaw.num_epochs - 1.0 if group.thaw_point is None else group.thaw_point
        if group.freeze_point is not None and group.freeze_point <= thaw_point:
            raise ValueError(
                f"groups.tables.freeze_point {group.freeze_point} is not after the thaw, at {thaw_point} epochs"
            )

    @property
    def model_name(self) -> str:
        """Name of the registered ranker in MLflow."""
        return f"thawline-{self.name}"

    @property
    def backbone_name(self) -> str:
        """Name of the registered backbone in MLflow."""
        return f"thawline-{self.name}-backbone"

    @property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of the JSON of what shapes the model: where and when it runs do not."""
        tree = {name: section for name, section in asdict(self).items() if name not in _PLACE_AND_TIME}
        return hashlib.sha256(_as_json(tree).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The recipe as JSON with sorted keys; `from_json` reads it back."""
        return _as_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        """Reads what `to_json` wrote.

        Raises:
            InputError: A key is unknown or missing, or a value is out of its range.
        """
        return _build(json.loads(text))

    def override(self, settings: Mapping[str, str]) -> "Recipe":
        """A copy with dotted keys set, as ``--set window.num_days=10`` does; values are read as YAML.

        Raises:
            InputError: A key is unknown, or a value is of the wrong type or out of its range.
        """
        tree = asdict(self)
        for dotted, text in settings.items():
            *parents, leaf = dotted.split(".")
            node: Any = tree
            for parent in parents:
                node = node.get(parent) if isinstance(node, dict) else None
            if not isinstance(node, dict) or leaf not in node or isinstance(node[leaf], dict):
                raise InputError(f"recipe '{self.name}': no field '{dotted}'; `--show-recipe` lists the fields")
            try:
                node[leaf] = yaml.safe_load(text)
            except yaml.YAMLError:
                raise InputError(f"recipe '{self.name}': {dotted}: '{text}' is no YAML; mend that value") from None
        return _build(tree)


def _as_json(tree: dict[str, Any]) -> str:
    return json.dumps(tree, sort_keys=True)


def _build(tree: dict[str, Any]) -> Recipe:
    try:
        return TypeAdapter(Recipe).validate_python(tree)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "recipe"
        raise InputError(f"recipe '{tree.get('name', '?')}': {place}: {first['msg']}; mend that field") from None
