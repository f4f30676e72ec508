"""Typed configuration of one run: nested frozen dataclasses, validated when they are built.

A recipe names *what* is trained on *which* logs. It is plain data: it travels between the steps of a DAG as JSON, it is
logged with every run, and its digest is part of a run's identity; where and when it runs on a cluster travels along,
but is no part of that. This room imports no torch.
"""

from trainer.recipe.cluster import ClusterConfig, PodConfig, ScheduleConfig
from trainer.recipe.data import BackboneConfig, LogsConfig, WindowConfig
from trainer.recipe.judging import EvaluationConfig, GateConfig
from trainer.recipe.model import LossesConfig, ModelConfig, TablesConfig, VlmConfig
from trainer.recipe.quality import QualityConfig
from trainer.recipe.recipe import Recipe
from trainer.recipe.thaw import (
    Arm,
    GuardConfig,
    PathsConfig,
    RemediesConfig,
    RemedyArm,
    RouteArm,
    RoutesConfig,
    ScheduleArm,
    StatePolicy,
    ThawConfig,
)
from trainer.recipe.training import GroupConfig, GroupsConfig, LookupConfig, TrainingConfig

__all__ = [
    "Arm",
    "BackboneConfig",
    "ClusterConfig",
    "EvaluationConfig",
    "GateConfig",
    "GroupConfig",
    "GroupsConfig",
    "GuardConfig",
    "LogsConfig",
    "LookupConfig",
    "LossesConfig",
    "ModelConfig",
    "PathsConfig",
    "PodConfig",
    "QualityConfig",
    "Recipe",
    "RemediesConfig",
    "RemedyArm",
    "RouteArm",
    "RoutesConfig",
    "ScheduleArm",
    "ScheduleConfig",
    "StatePolicy",
    "TablesConfig",
    "ThawConfig",
    "TrainingConfig",
    "VlmConfig",
    "WindowConfig",
]
