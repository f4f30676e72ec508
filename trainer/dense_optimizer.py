"""Adam over groups of dense parameters, each with a schedule of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainer.thaw.schedule import GroupSchedule


@dataclass(frozen=True, kw_only=True)
class Group:
    """Parameters that train together.

    Attributes:
        parameters: At least one.
        schedule: When they train, and how fast.
        freeze: Told whenever they freeze (True) or thaw (False), so that a forward pass may save work.
    """

    parameters: Sequence[nn.Parameter]
    schedule: GroupSchedule
    freeze: Callable[[bool], None] = lambda is_frozen: None


class DenseOptimizer:
    """Fused Adam; a frozen group keeps every bit of its parameters and of its state.

    A step of size zero would not do: Adam's averages would move on.

    Args:
        groups: The groups.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        self._adam = torch.optim.Adam([{"params": list(group.parameters)} for group in groups], fused=True)
        self._is_frozen: list[bool | None] = [None] * len(groups)

    def begin_step(self, progress: float) -> None:
        """See `trainer.loop.Optimizer`."""
        self._adam.zero_grad()
        for number, (group, settings) in enumerate(zip(self._groups, self._adam.param_groups, strict=True)):
            is_frozen = not group.schedule.adapts_at(progress)
            if is_frozen != self._is_frozen[number]:
                group.freeze(is_frozen)
                self._is_frozen[number] = is_frozen
            if not is_frozen:
                settings["lr"] = group.schedule.learning_rate_at(progress)

    def step(self) -> None:
        """See `trainer.loop.Optimizer`."""
        for group, is_frozen in zip(self._groups, self._is_frozen, strict=True):
            if is_frozen:
                for parameter in group.parameters:
                    parameter.grad = None
        self._adam.step()

    def state_dict(self) -> dict[str, Any]:
        """Adam's own."""
        return self._adam.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` returned."""
        self._adam.load_state_dict(dict(state))
