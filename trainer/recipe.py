"""Typed configuration of one run: nested frozen dataclasses, validated when they are built.

A recipe names *what* is trained on *which* logs. It is plain data: it travels between the steps of a DAG as JSON, it is
logged with every run, and its digest is part of a run's identity. This module imports no torch.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from trainer.errors import InputError

_STRICT_KEYS = ConfigDict(extra="forbid")

PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]

Arm = Literal["single_epoch", "cotrain", "frozen", "delayed", "adapt_then_freeze"]
StatePolicy = Literal["keep", "reset", "restore"]


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class LogsConfig:
    """Where the impressions lie, and their shape within the log contract (``trainer/windows/contract.py``).

    Attributes:
        uri: Folder that holds ``dt=YYYY-MM-DD/*.parquet``.
        labels: Boolean label columns, one head each; the first is always ``save``.
        num_user_features: Length of ``user_features``.
        num_pin_features: Length of ``pin_features``.
    """

    uri: str
    labels: tuple[str, ...] = ("save",)
    num_user_features: PositiveInt
    num_pin_features: PositiveInt

    def __post_init__(self) -> None:
        if not self.labels or self.labels[0] != "save":
            raise ValueError("labels must begin with 'save'")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ from each other")


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class WindowConfig:
    """The days that one retrain trains on, before its one held-out day.

    Attributes:
        num_days: Training days.
        shuffle_seed: Seed of the order of slates within a prepared day.
    """

    num_days: PositiveInt = 20
    shuffle_seed: int = 17


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class BackboneConfig:
    """The contrastive pretraining on the days before the window.

    Attributes:
        num_days: Days to pretrain on; they end the day before the window begins.
        num_epochs: Passes over them.
    """

    num_days: PositiveInt = 60
    num_epochs: PositiveInt = 1


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class TablesConfig:
    """The ID embedding tables; one pin table serves candidate, history and negatives.

    Attributes:
        num_user_rows: Rows of the user table; ids are hashed into them.
        num_pin_rows: Rows of the pin table.
        dim: Width of a row, in float32 values.
        hash_seed: Seed of the id hash; part of a backbone's identity.
        learning_rate: Step size of the fused row-wise Adagrad.
    """

    num_user_rows: PositiveInt
    num_pin_rows: PositiveInt
    dim: PositiveInt = 16
    hash_seed: int = 0
    learning_rate: PositiveFloat = 0.02


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class ModelConfig:
    """The dense network.

    Attributes:
        history_length: Most recent engagements that the transformer reads.
        num_transformer_layers: Encoder layers over the history.
        num_attention_heads: Heads of each; divides the transformer's width, which is twice ``tables.dim``.
        num_cross_layers: Full-rank DCNv2 layers.
        hidden_sizes: Widths of the tower between crossing and heads.
        dropout: Dropout in the tower.
    """

    history_length: PositiveInt = 20
    num_transformer_layers: PositiveInt = 1
    num_attention_heads: PositiveInt = 2
    num_cross_layers: PositiveInt = 2
    hidden_sizes: tuple[PositiveInt, ...] = (64, 32)
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class LossesConfig:
    """Weights of the losses.

    Attributes:
        head_weights: Weight of each label's binary cross-entropy, in the order of ``logs.labels``.
        pairwise_weight: Weight of the within-slate pairwise logistic loss on ``save``.
        contrastive_weight: Weight of the user-to-pin in-batch softmax.
        temperature: Temperature of that softmax.
    """

    head_weights: tuple[NonNegativeFloat, ...] = (1.0,)
    pairwise_weight: NonNegativeFloat = 0.1
    contrastive_weight: NonNegativeFloat = 0.05
    temperature: PositiveFloat = 0.1


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class ThawConfig:
    """When the tables adapt.

    Attributes:
        arm: Named way to train (``trainer/thaw/arms.py``).
        num_epochs: Passes over the window; ``single_epoch`` always makes one.
        thaw_point: Epochs after which the tables start to adapt, fractions allowed; None is the arm's own.
        state: What the tables' optimizer state becomes at the thaw.
    """

    arm: Arm = "delayed"
    num_epochs: PositiveInt = 2
    thaw_point: NonNegativeFloat | None = None
    state: StatePolicy = "reset"

    def __post_init__(self) -> None:
        if self.thaw_point is not None and self.arm != "delayed":
            raise ValueError(f"thaw_point belongs to arm 'delayed', not '{self.arm}'")
        if self.thaw_point is not None and self.thaw_point >= self.num_epochs:
            raise ValueError(f"thaw_point {self.thaw_point} lies beyond the last of {self.num_epochs} epochs")


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class TrainingConfig:
    """The loop.

    Attributes:
        num_ranks: Processes that ``torchrun`` starts, one device each.
        batch_rows: Impressions a step, all ranks together; whole slates, so a step may hold a few more or less.
        learning_rate: Adam's step size for the dense network.
        seed: Seed of initialisation, of the order of slates and of dropout.
    """

    num_ranks: PositiveInt = 1
    batch_rows: PositiveInt = 128
    learning_rate: PositiveFloat = 1e-3
    seed: int = 0


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class EvaluationConfig:
    """How candidate and champion are compared on the held-out day.

    Attributes:
        hit_k: Pins of a slate that count as its top.
        num_bootstrap: Resamples of users for an interval.
        confidence: Coverage of the intervals.
        seed: Seed of the resamples.
    """

    hit_k: PositiveInt = 3
    num_bootstrap: PositiveInt = 1000
    confidence: Fraction = 0.95
    seed: int = 0


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class GateConfig:
    """What a candidate must show before it becomes champion; the gate reads intervals, never points.

    Attributes:
        min_save_lift_low: The lower end of the save lift's interval against the champion must lie above it.
        min_auc_low: The lower end of the candidate's own AUC interval on ``save`` must lie above it.
        calibration_range: The candidate's whole interval of predicted over observed saves must lie within it.
    """

    min_save_lift_low: float = 0.0
    min_auc_low: Fraction = 0.5
    calibration_range: tuple[PositiveFloat, PositiveFloat] = (0.8, 1.25)


@dataclass(frozen=True, kw_only=True, config=_STRICT_KEYS)
class Recipe:
    """One run. Recipes by name are functions in ``pipelines/recipes.py``.

    Attributes:
        name: Names the registered model too: ``thawline-<name>``.
    """

    name: str
    logs: LogsConfig
    tables: TablesConfig
    window: WindowConfig = WindowConfig()
    backbone: BackboneConfig = BackboneConfig()
    model: ModelConfig = ModelConfig()
    losses: LossesConfig = LossesConfig()
    thaw: ThawConfig = ThawConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    gate: GateConfig = GateConfig()

    def __post_init__(self) -> None:
        if len(self.losses.head_weights) != len(self.logs.labels):
            num_weights, num_labels = len(self.losses.head_weights), len(self.logs.labels)
            raise ValueError(f"losses.head_weights has {num_weights} values for {num_labels} logs.labels")
        if (2 * self.tables.dim) % self.model.num_attention_heads:
            raise ValueError("model.num_attention_heads must divide twice tables.dim")

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
        """First 16 hex digits of the SHA-256 of the recipe's JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The recipe as JSON with sorted keys; `from_json` reads it back."""
        return json.dumps(asdict(self), sort_keys=True)

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


def _build(tree: dict[str, Any]) -> Recipe:
    try:
        return TypeAdapter(Recipe).validate_python(tree)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "recipe"
        raise InputError(f"recipe '{tree.get('name', '?')}': {place}: {first['msg']}; mend that field") from None
