"""One comparison of arms: its cases, each an arm with a seed and a window length, and the folder that it writes to."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.run import Run, records_folder
from trainer.errors import InputError
from trainer.recipe import Recipe
from trainer.thaw.variants import recipe_of

BASELINE = "single_epoch"
"""The arm that all others are judged against; it is part of every comparison."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training of a comparison.

    Attributes:
        arm: Way to train, with its settings (`trainer.thaw.variants`).
        window_days: Training days: the newest of the comparison's longest window.
        seed: Of initialisation, order and dropout.
    """

    arm: str
    window_days: int
    seed: int

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> "Case":
        """Reads a DAG's parameter, whose numbers are all floats."""
        return cls(arm=content["arm"], window_days=int(content["window_days"]), seed=int(content["seed"]))

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.arm}, {self.window_days} days, seed {self.seed}"

    def recipe_of(self, recipe: Recipe) -> Recipe:
        """The recipe that it trains by.

        Args:
            recipe: Everything else.

        Raises:
            InputError: There is no such arm, or its settings do not fit the recipe.
        """
        settings = {"window.num_days": str(self.window_days), "training.seed": str(self.seed)}
        return recipe_of(recipe.override(settings), self.arm)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What all steps of one comparison share.

    Attributes:
        run: Recipe, of the longest window, date and store.
        cases: All trainings, those of the baseline among them.
    """

    run: Run
    cases: tuple[Case, ...]

    @classmethod
    def parse(cls, run: Run, cases: Iterable[Mapping[str, Any]]) -> "Comparison":
        """Builds a comparison from a DAG's parameters."""
        return cls(run=run, cases=tuple(Case.parse(case) for case in cases))

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms in their order, the baseline first."""
        return tuple(dict.fromkeys(case.arm for case in self.cases))

    @property
    def window_lengths(self) -> tuple[int, ...]:
        """The window lengths in days, ascending."""
        return tuple(sorted({case.window_days for case in self.cases}))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, ascending."""
        return tuple(sorted({case.seed for case in self.cases}))

    @property
    def folder(self) -> Path:
        """Where its records lie; the same recipe, date and cases share one folder."""
        name = f"{self.run.recipe.name}-{self.run.date.isoformat()}-{self.key()[:8]}"
        return records_folder(self.run.store) / "comparisons" / name

    @property
    def report_folder(self) -> Path:
        """Where ``report.html``, its figures and ``comparison.json`` lie."""
        return self.folder / "report"

    def to_json(self) -> list[dict[str, Any]]:
        """The cases as a DAG's parameter; `parse` reads them back."""
        return [asdict(case) for case in self.cases]

    def key(self, *read: str) -> str:
        """Identity of the comparison, 16 hex digits.

        Args:
            read: Digests or versions of what it reads: its window and its backbone.
        """
        parts = [self.run.recipe.digest, self.run.date.isoformat(), self.to_json(), *read]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def plan_cases(recipe: Recipe, arms: Sequence[str], num_seeds: int, window_lengths: Sequence[int]) -> tuple[Case, ...]:
    """Every arm with every seed and window length; the baseline comes first, asked for or not.

    Args:
        recipe: Everything else; its ``training.seed`` is the first seed.
        arms: Arms with their settings.
        num_seeds: Seeds, one after the other.
        window_lengths: Training days.

    Raises:
        InputError: An arm is unknown, does not fit the recipe or is another in other words; a number is below one or
            there twice; there is nothing to compare with the baseline.
    """
    if num_seeds < 1:
        raise InputError(f"--seeds {num_seeds}: trains nothing; ask for one seed or more")
    _refuse_bad_lengths(window_lengths)
    twice = next((arm for arm in arms if list(arms).count(arm) > 1), None)
    if twice is not None:
        raise InputError(f"--arms: '{twice}' is there twice; name each arm once")
    all_arms = list(dict.fromkeys([BASELINE, *arms]))
    if len(all_arms) == 1:
        raise InputError(f"--arms: nothing to judge against {BASELINE}; name another arm, such as delayed")
    seeds = [recipe.training.seed + number for number in range(num_seeds)]
    cases = tuple(
        Case(arm=arm, window_days=window_days, seed=seed)
        for window_days in sorted(window_lengths)
        for seed in seeds
        for arm in all_arms
    )
    _refuse_synonyms(recipe, cases[: len(all_arms)])
    return cases


def _refuse_bad_lengths(window_lengths: Sequence[int]) -> None:
    for window_days in window_lengths:
        if window_days < 1:
            raise InputError(f"--window-days {window_days}: no day to train on; ask for one day or more")
        if list(window_lengths).count(window_days) > 1:
            raise InputError(f"--window-days: {window_days} is there twice; name each length once")


def _refuse_synonyms(recipe: Recipe, cases: Sequence[Case]) -> None:
    """Refuses two arms that train by one recipe, such as ``delayed`` and ``delayed*2``."""
    arm_of: dict[str, str] = {}
    for case in cases:
        digest = case.recipe_of(recipe).digest
        if digest in arm_of:
            raise InputError(f"--arms: '{case.arm}' and '{arm_of[digest]}' train alike; leave one of them out")
        arm_of[digest] = case.arm
