"""Reads a mapping file; what is wrong with it is one line, with the key's path."""

import difflib
from collections.abc import Mapping as Tree
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from trainer.errors import InputError
from trainer.windows.importing.mapping import Mapping


def load_mapping(path: Path) -> Mapping:
    """Reads a mapping file.

    Raises:
        InputError: It cannot be read, a key is unknown or missing, or a value is out of its range.
    """
    try:
        tree = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; name the mapping file with --mapping") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())}); mend it") from None
    if not isinstance(tree, dict):
        raise InputError(f"{path}: holds no keys; start from an example of docs/import.md")
    return parse_mapping(tree, str(path))


def parse_mapping(tree: Tree[str, Any], file: str) -> Mapping:
    """The mapping that `tree`, the content of `file`, holds.

    Raises:
        InputError: A key is unknown or missing, or a value is out of its range.
    """
    try:
        return TypeAdapter(Mapping).validate_python(tree)
    except ValidationError as error:
        # A mistyped key is often told twice: as one that is unknown, and as the one that is then missing.
        errors = sorted(error.errors(), key=lambda found: found["type"] != "unexpected_keyword_argument")
        raise InputError(f"{file}: {_told(errors[0]['loc'], errors[0]['type'], errors[0]['msg'])}") from None


def _told(loc: tuple[str | int, ...], kind: str, message: str) -> str:
    place = ".".join(str(part) for part in loc) or "the mapping"
    if kind == "unexpected_keyword_argument":
        known = _keys_at(loc[:-1])
        near = difflib.get_close_matches(str(loc[-1]), known, n=1)
        remedy = f"did you mean '{near[0]}'?" if near else f"the keys there are {', '.join(known)}"
        return f"{place}: no such key; {remedy}"
    if kind == "missing":
        return f"{place}: is missing; add that key"
    return f"{place}: {message.removeprefix('Value error, ')}; mend that key"


def _keys_at(place: tuple[str | int, ...]) -> list[str]:
    """Keys of the section at `place`."""
    section: Any = Mapping
    for part in place:
        if isinstance(part, int) or not is_dataclass(section):
            continue
        kind = get_type_hints(section)[part]
        section = _section_of(kind) or section
    return [field.name for field in fields(section)]


def _section_of(kind: Any) -> Any:
    """The section's class within a type such as ``tuple[Section, ...]`` or ``Section | None``."""
    if is_dataclass(kind):
        return kind
    return next((found for part in get_args(kind) if (found := _section_of(part))), None)
