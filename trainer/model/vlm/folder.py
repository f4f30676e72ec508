"""Where a Hugging Face encoder lies: a local folder, or one that is fetched from ``gs://`` once."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer.errors import InputError
from trainer.storage.filesystem import Stored, list_stored
from trainer.storage.publishing import fetch, folder_aside
from trainer.storage.uris import is_gcs, join, local_path
from trainer.windows.logs import fingerprint

_WEIGHTS = "*.safetensors"
_DESCRIPTIONS = (".json", ".txt", ".model", ".jinja")


def encoder_folder(uri: str) -> Path:
    """The local folder of an encoder; fetches one from ``gs://`` unless the same objects were fetched before.

    ``STORAGE_EMULATOR_HOST`` names another server, as for all of Google's clients; what is fetched stays in
    ``$XDG_CACHE_HOME/thawline/encoders``.

    Raises:
        InputError: There is no such folder or bucket, or it cannot be read.
        StorageError: Storage failed for too long.
    """
    if is_gcs(uri):
        return _fetched(uri)
    folder = local_path(uri)
    if not (folder / "config.json").is_file():
        raise InputError(f"{uri}: no encoder here (config.json is missing); set vlm.path to a Hugging Face folder")
    return folder


def require_safetensors(folder: Path) -> None:
    """Refuses a folder whose weights are pickled or missing.

    Raises:
        InputError: It holds no ``*.safetensors``.
    """
    if not any(folder.glob(_WEIGHTS)):
        raise InputError(
            f"{folder}: holds no {_WEIGHTS}; save the encoder with safe serialization and name that folder"
        )


def copy_description(folder: Path, out: Path) -> dict[str, str]:
    """Copies what says how an encoder is built and fed, without its weights.

    Returns:
        SHA-256 (hex) of each file by its name, for `check_description`.
    """
    out.mkdir(parents=True, exist_ok=True)
    names = sorted(file.name for file in folder.iterdir() if file.suffix in _DESCRIPTIONS and file.is_file())
    names = [name for name in names if not name.endswith(".index.json")]  # of weights in several files
    for name in names:
        shutil.copyfile(folder / name, out / name)
    return {name: fingerprint(out / name).digest for name in names}


def check_description(folder: Path, checksums: Mapping[str, str]) -> None:
    """Compares a copied description with its checksums.

    Raises:
        InputError: A file is missing or was changed.
    """
    for name, expected in checksums.items():
        if not (folder / name).is_file() or fingerprint(folder / name).digest != expected:
            raise InputError(f"{folder / name}: missing, or its checksum is not the model's; fetch the model again")


def _fetched(uri: str) -> Path:
    files = list_stored(uri, is_recursive=True)
    if not any(file.name == "config.json" for file in files):
        raise InputError(f"{uri}: no encoder here (config.json is missing); set vlm.path to a Hugging Face folder")
    target = _cache() / _identity(files)
    if not target.is_dir():
        with folder_aside(target) as aside:
            for file in files:
                copy = aside / file.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                fetch(join(uri, file.name), copy)
    return target


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thawline" / "encoders"


def _identity(files: Sequence[Stored]) -> str:
    facts = [f"{file.name} {file.num_bytes} {file.version}" for file in files]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
