"""Where a Hugging Face encoder lies: a local folder, or one that is fetched from ``gs://`` once."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from pyarrow import fs

from trainer.errors import InputError
from trainer.storage.publishing import folder_aside
from trainer.storage.uris import local_path
from trainer.windows.logs import fingerprint

_SCHEME = "gs://"
_RETRY_S = 20  # a bucket that does not answer ends the run, where Google's client would try for a quarter of an hour
_WEIGHTS = "*.safetensors"
_DESCRIPTIONS = (".json", ".txt", ".model", ".jinja")


def encoder_folder(uri: str) -> Path:
    """The local folder of an encoder; fetches one from ``gs://`` unless the same objects were fetched before.

    ``STORAGE_EMULATOR_HOST`` names another server, as for all of Google's clients; what is fetched stays in
    ``$XDG_CACHE_HOME/thawline/encoders``.

    Raises:
        InputError: There is no such folder or bucket, or it cannot be read.
    """
    if uri.startswith(_SCHEME):
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
    root = uri.removeprefix(_SCHEME).rstrip("/")
    try:
        files = _list_files(root)
    except OSError as error:
        raise _unreadable(uri, error) from None
    if not any(file.path == f"{root}/config.json" for file in files):
        raise InputError(f"{uri}: no encoder here (config.json is missing); set vlm.path to a Hugging Face folder")
    target = _cache() / _identity(files)
    if not target.is_dir():
        with folder_aside(target) as aside:
            _copy(uri, root, files, aside)
    return target


def _list_files(root: str) -> list[fs.FileInfo]:
    found = _storage().get_file_info(fs.FileSelector(root, recursive=True))
    return sorted((file for file in found if file.type == fs.FileType.File), key=lambda file: file.path)


def _copy(uri: str, root: str, files: Sequence[fs.FileInfo], aside: Path) -> None:
    for file in files:
        copy = aside / file.path.removeprefix(f"{root}/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            fs.copy_files(
                file.path, str(copy), source_filesystem=_storage(), destination_filesystem=fs.LocalFileSystem()
            )
        except OSError as error:
            raise _unreadable(uri, error) from None


def _storage() -> fs.GcsFileSystem:
    limit = timedelta(seconds=_RETRY_S)
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if not emulator:
        return fs.GcsFileSystem(retry_time_limit=limit)
    address = urlsplit(emulator if "://" in emulator else f"http://{emulator}")
    return fs.GcsFileSystem(
        anonymous=True, scheme=address.scheme, endpoint_override=address.netloc, retry_time_limit=limit
    )


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thawline" / "encoders"


def _identity(files: Sequence[fs.FileInfo]) -> str:
    facts = [f"{file.path} {file.size} {file.mtime_ns}" for file in files]
    return hashlib.digest("\n".join(facts).encode()).hexdigest()[:16]


def _unreadable(uri: str, error: OSError) -> InputError:
    reason = str(error).splitlines()[0][:200].rstrip(". ")
    return InputError(f"{uri}: cannot be read ({reason}); name a bucket and folder that exist and that you may read")
