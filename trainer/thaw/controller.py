"""Carries a schedule out on the tables: what the optimizer state becomes at the moment they thaw."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from trainer.recipe import StatePolicy
from trainer.thaw.schedule import ThawSchedule


class Thawable(Protocol):
    """Tables whose optimizer state can be set."""

    def reset_state(self) -> None:
        """Sets it to zero."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Sets it to whole tensors, by table."""
        ...


class Thaw:
    """Says at each step whether tables adapt, and applies the state policy at each thaw.

    Args:
        schedule: When they adapt.
        policy: ``keep`` leaves the state as it is (it came with the backbone), ``reset`` zeroes it, ``restore`` sets
            it to the backbone's, whatever happened since.
        tables: Whose state.
        backbone_state: The backbone's optimizer state, whole tensors by table.
    """

    def __init__(
        self, schedule: ThawSchedule, policy: StatePolicy, tables: Thawable, backbone_state: Mapping[str, Tensor]
    ) -> None:
        self._schedule, self._policy = schedule, policy
        self._tables, self._backbone_state = tables, backbone_state
        self._was_adapting = False

    def at(self, progress: float) -> bool:
        """Whether the tables adapt in the step that begins at ``progress`` epochs."""
        adapting = self._schedule.adapts_at(progress)
        if adapting and not self._was_adapting:
            self._apply_policy()
        self._was_adapting = adapting
        return adapting

    def _apply_policy(self) -> None:
        match self._policy:
            case "keep":
                pass
            case "reset":
                self._tables.reset_state()
            case "restore":
                self._tables.load_state(self._backbone_state)
