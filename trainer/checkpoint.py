"""Models and backbones on disk: safetensors beside one JSON manifest, written last, which holds their checksums."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from trainer.errors import InputError

_MANIFEST = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder whose content is as it was written.

    Attributes:
        folder: Where it lies.
        kind: ``model`` or ``backbone``.
        facts: JSON-able description that its writer gave.
        checksum: SHA-256 over the checksums of its tensor files.
    """

    folder: Path
    kind: str
    facts: Mapping[str, Any]
    checksum: str

    def tensors(self, part: str) -> dict[str, Tensor]:
        """The tensors of one part, on CPU."""
        return load_file(self.folder / f"{part}.safetensors")


def write_checkpoint(
    folder: str | Path, *, kind: str, facts: Mapping[str, Any], parts: Mapping[str, Mapping[str, Tensor]]
) -> Checkpoint:
    """Writes each part as ``<part>.safetensors``, then the manifest, without which `read_checkpoint` refuses."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MANIFEST).unlink(missing_ok=True)
    for part, tensors in parts.items():
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / f"{part}.safetensors")
    files = {f"{part}.safetensors": _sha256(folder / f"{part}.safetensors") for part in sorted(parts)}
    manifest = {"format": _FORMAT, "kind": kind, "facts": facts, "files": files}
    aside = folder / f"{_MANIFEST}.aside"
    aside.write_text(json.dumps(manifest, indent=2, sort_keys=True))
    os.replace(aside, folder / _MANIFEST)
    return Checkpoint(folder=folder, kind=kind, facts=facts, checksum=_combined(files))


def read_checkpoint(folder: str | Path, *, kind: str) -> Checkpoint:
    """Opens what `write_checkpoint` wrote, after comparing every file with its checksum.

    Raises:
        InputError: The folder is no finished checkpoint of this kind, or a file was changed.
    """
    folder = Path(folder)
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        written, facts, files = (manifest["kind"], manifest["format"]), manifest["facts"], manifest["files"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{folder}: no finished {kind} here ({_MANIFEST} cannot be read); write it again") from None
    if written != (kind, _FORMAT):
        found = f"{written[0]} of format {written[1]}"
        raise InputError(f"{folder}: holds a {found}, not a {kind} of format {_FORMAT}; name another folder")
    for name, expected in files.items():
        if not (folder / name).is_file() or _sha256(folder / name) != expected:
            raise InputError(f"{folder / name}: missing, or its checksum is not {_MANIFEST}'s; fetch the {kind} again")
    return Checkpoint(folder=folder, kind=kind, facts=facts, checksum=_combined(files))


def _combined(files: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(files[name] for name in sorted(files)).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
