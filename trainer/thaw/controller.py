"""Carries an arm's plan out on the tables: when they adapt, how fast, and what they go back to."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from trainer.recipe import StatePolicy
from trainer.thaw.schedule import GroupSchedule


class Thawable(Protocol):
    """Tables whose rows and optimizer state can be set."""

    def reset_state(self) -> None:
        """Sets the optimizer state to zero."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Sets the optimizer state to whole tensors, by table."""
        ...

    def load_rows(self, rows: Mapping[str, Tensor]) -> None:
        """Sets the rows to whole tensors, by table."""
        ...

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the size of the coming steps."""
        ...


class AlwaysAdapting:
    """For tables without a schedule: they adapt in every step."""

    def adapts_at(self, progress: float) -> bool:
        """True; see `Thaw.adapts_at`."""
        return True

    def prepare(self, progress: float) -> None:
        """Nothing to do; see `Thaw.prepare`."""


class Thaw:
    """Says at each step whether tables adapt, and prepares them for it.

    Args:
        schedule: When they adapt, and the size of their steps.
        policy: What becomes of the optimizer state at a thaw: ``keep`` leaves it as it is (it came with the backbone),
            ``reset`` zeroes it, ``restore`` sets it to the backbone's, whatever happened since.
        tables: What adapts.
        backbone_rows: The backbone's rows, whole tensors by table.
        backbone_state: The backbone's optimizer state, whole tensors by table.
        restores_rows: Whether each later pass begins with the backbone's rows, and its state by the policy.
    """

    def __init__(
        self,
        schedule: GroupSchedule,
        policy: StatePolicy,
        tables: Thawable,
        *,
        backbone_rows: Mapping[str, Tensor],
        backbone_state: Mapping[str, Tensor],
        restores_rows: bool = False,
    ) -> None:
        self._schedule, self._policy, self._tables = schedule, policy, tables
        self._backbone_rows, self._backbone_state = backbone_rows, backbone_state
        self._restores_rows = restores_rows
        self._was_adapting = False
        self._is_refrozen = False
        self._learning_rate: float | None = None

    def begin_epoch(self, epoch: int, *, last_progress: float) -> None:
        """Prepares the tables for a pass, also when training goes on from a state that was kept.

        Args:
            epoch: Which pass: 0, 1, ...
            last_progress: Where the last step before it began, in epochs; anything negative before the first.
        """
        self._was_adapting = self._schedule.adapts_at(last_progress)
        if self._restores_rows and epoch > 0:
            self._tables.load_rows(self._backbone_rows)
            self._was_adapting = False

    def adapts_at(self, progress: float) -> bool:
        """Whether the tables adapt in the step that begins at ``progress`` epochs."""
        return self._schedule.adapts_at(progress) and not self._is_refrozen

    def prepare(self, progress: float) -> None:
        """Readies the tables for the step that begins at ``progress`` epochs, and in which they adapt.

        It may be called for a step more than once, and for the step after it in between.
        """
        if not self._was_adapting:
            self._apply_policy()
        self._was_adapting = True
        self._set_learning_rate(self._schedule.learning_rate_at(progress))

    def refreeze(self) -> None:
        """Takes the tables back to the backbone's rows and state, for good.

        Freezing them as they are would not do: they hold the window's labels, and a network that trains on beside them
        learns to read those (``adapt_then_freeze``).
        """
        self._tables.load_rows(self._backbone_rows)
        self._tables.load_state(self._backbone_state)
        self._is_refrozen = True

    def _set_learning_rate(self, learning_rate: float) -> None:
        if learning_rate != self._learning_rate:
            self._tables.set_learning_rate(learning_rate)
            self._learning_rate = learning_rate

    def _apply_policy(self) -> None:
        match self._policy:
            case "keep":
                pass
            case "reset":
                self._tables.reset_state()
            case "restore":
                self._tables.load_state(self._backbone_state)
