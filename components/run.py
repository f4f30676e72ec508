"""One run of a DAG: its recipe, its date and the folder that it writes to."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from trainer.errors import InputError
from trainer.recipe import Recipe
from trainer.storage.uris import bucket_and_key, is_gcs, local_path


@dataclass(frozen=True, kw_only=True)
class Run:
    """What all steps of one run share.

    Attributes:
        recipe: What is trained on which logs.
        date: UTC day on which the retrain runs; the day before it is held out.
        store: Folder that everything we write is kept in; of one in ``gs://`` only days and windows lie there, and
            what else is written in `records_folder`.
    """

    recipe: Recipe
    date: date
    store: str

    @classmethod
    def parse(cls, recipe: str, date_: str, store: str) -> "Run":
        """Builds a run from a DAG's parameters.

        Raises:
            InputError: The recipe or the date is no good.
        """
        return cls(recipe=Recipe.from_json(recipe), date=parse_date(date_), store=store)

    @property
    def folder(self) -> Path:
        """Where the run's records lie; the same recipe and date share one folder."""
        name = f"{self.recipe.name}-{self.date.isoformat()}-{self.recipe.digest[:8]}"
        return records_folder(self.store) / "runs" / name

    @property
    def summary_path(self) -> Path:
        """The JSON that a retrain ends with."""
        return self.folder / "summary.json"

    @property
    def backbone_path(self) -> Path:
        """The JSON that a pretraining ends with."""
        return self.folder / "backbone.json"

    def key(self, window_digest: str, backbone: str) -> str:
        """Identity of a retrain, 16 hex digits: what it reads and how it trains.

        Args:
            window_digest: Digest of the window's manifest.
            backbone: Version of the backbone that it starts from.
        """
        parts = [self.recipe.digest, self.date.isoformat(), window_digest, backbone]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def records_folder(store: str) -> Path:
    """Where what a run writes besides days and windows lies: in the store, or, of one in ``gs://``, on this machine."""
    if is_gcs(store):
        return Path(".thawline", "gs", *filter(None, bucket_and_key(store)))
    return local_path(store)


def parse_date(text: str) -> date:
    """Reads ``YYYY-MM-DD``; of a time with its zone, such as ``2024-01-10T06:00:00Z``, the UTC day.

    Raises:
        InputError: It is no such date.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"date '{text}': not a day; write it as YYYY-MM-DD") from None
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()
