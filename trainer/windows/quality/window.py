"""The checks of a window: from its manifest to a verdict, without reading a row."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from trainer.errors import InputError
from trainer.recipe import LogsConfig, Recipe
from trainer.storage.publishing import read_json
from trainer.storage.uris import join
from trainer.windows.manifest import PARTITION_JSON, Partition, load_window
from trainer.windows.quality.days import DayFacts
from trainer.windows.quality.profile import PROFILE_VERSION, DayProfile
from trainer.windows.quality.report import QualityReport, judge

_REMEDY = "remove that folder and prepare its day again"


def check_window(recipe: Recipe, window_path: str) -> QualityReport:
    """Holds a window's newest days against the days before them.

    Args:
        recipe: The shape of its logs, and the limits.
        window_path: The window's manifest.

    Raises:
        InputError: The manifest or a prepared day cannot be read.
    """
    window = load_window(window_path)
    partitions = [*window.days, *([window.heldout] if window.heldout else [])]
    return judge(recipe, [_facts(recipe.logs, partition) for partition in partitions])


def _facts(logs: LogsConfig, partition: Partition) -> DayFacts:
    contents = []
    for path in partition.paths:
        content = read_json(join(path, PARTITION_JSON), _REMEDY)
        if content.get("profile", {}).get("profile_version") != PROFILE_VERSION:
            raise InputError(f"{path}: has no profile of version {PROFILE_VERSION}; {_REMEDY}")
        contents.append(content)
    return facts_of(logs, partition.day, contents)


def facts_of(logs: LogsConfig, day: date, contents: Sequence[Mapping[str, Any]]) -> DayFacts:
    """One day as the checks see it.

    Args:
        logs: Of the recipe that it was prepared by.
        day: The UTC day.
        contents: What ``partition.json`` holds: of the day, or of each of its shards.
    """
    profile = DayProfile(logs)
    for content in contents:
        profile.merge(DayProfile.from_json(logs, content["profile"]))

    def total(name: str) -> int:
        return sum(content["filters"][name] for content in contents)

    return DayFacts(
        day=day,
        num_slates=sum(content["num_slates"] for content in contents),
        num_raw_rows=total("num_raw_rows"),
        num_duplicates=total("num_duplicates"),
        num_quarantined=total("num_quarantined"),
        profile=profile,
    )
