"""The note beside an imported log that says where it came from, so that a check can name the key to change."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.storage.filesystem import exists
from trainer.storage.publishing import read_json, write_json
from trainer.storage.uris import join
from trainer.windows.importing.files import SourceFile
from trainer.windows.importing.mapping import Mapping
from trainer.windows.importing.summary import ImportSummary

NOTE = "import.json"

_MAX_FILES = 1000


@dataclass(frozen=True, kw_only=True)
class Note:
    """Where an imported log came from.

    Attributes:
        mapping: Path of the mapping file.
        keys: The mapping's key that each column of the log came from.
    """

    mapping: str
    keys: dict[str, str]


def write_note(
    out: Path, mapping: Mapping, mapping_file: str, files: Sequence[SourceFile], summary: ImportSummary
) -> None:
    """Writes the note into the log's folder.

    Raises:
        InputError: The folder cannot be written to.
    """
    content: dict[str, Any] = {
        "mapping": mapping_file,
        "keys": keys_of(mapping),
        "num_files": len(files),
        "files": [{"uri": file.uri, "num_bytes": file.num_bytes} for file in files[:_MAX_FILES]],
        "summary": summary.to_json(),
    }
    write_json(out / NOTE, content)


def read_note(uri: str) -> Note | None:
    """The note of the log at `uri`; None where it was not imported.

    Raises:
        InputError: There is one that cannot be read.
        StorageError: Storage failed for too long.
    """
    place = join(uri, NOTE)
    if not exists(place):
        return None
    content = read_json(place, "remove it, or import the log again")
    return Note(mapping=str(content["mapping"]), keys=dict(content["keys"]))


def keys_of(mapping: Mapping) -> dict[str, str]:
    """The mapping's key for each column of the log."""
    joined = {} if mapping.engagements is None else mapping.engagements.labels
    past = "history.from_column" if mapping.history.from_column is not None else "history.from_labels"
    own = ("request_id", "user_id", "pin_id", "ts", "position", "user_features", "pin_features", *mapping.extras)
    return {
        **{name: name for name in own},
        **{label: f"labels.{label}" for label in mapping.labels},
        **{label: f"engagements.labels.{label}" for label in joined},
        "history": past,
        "history_actions": past,
    }
