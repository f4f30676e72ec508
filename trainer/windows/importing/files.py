"""The files of a source: found by path or pattern, opened as streams, cut into blocks of whole records.

Memory is one block of `BLOCK_BYTES` and a record's rest, whatever a file's size.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from trainer.errors import InputError
from trainer.storage.errors import explained
from trainer.storage.filesystem import filesystem_of, list_stored, stat
from trainer.storage.uris import is_gcs, join, name_of, parent_of

BLOCK_BYTES = 8 * 1024**2
MAX_RECORD_BYTES = 64 * 1024**2

_WILD = re.compile(r"[*?\[]")
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_PARQUET = b"PAR1"
_ANY_FOLDERS = "(?:[^/]+/)*"


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file as it was found.

    Attributes:
        uri: Where it lies.
        num_bytes: Its size, packed as it is.
        version: Differs once its content does.
    """

    uri: str
    num_bytes: int
    version: str

    def check_unchanged(self) -> None:
        """Looks at it again, after it was read.

        Raises:
            InputError: It is not what it was.
        """
        if stat(self.uri).version != self.version:
            raise InputError(f"{self.uri}: changed while it was read; import again when it is complete")


class Block(NamedTuple):
    """Whole records of a text file.

    Attributes:
        data: Their bytes.
        first_line: Number of the line that they begin on, counted from 1.
    """

    data: bytes
    first_line: int


def find_files(patterns: Iterable[str], option: str) -> tuple[SourceFile, ...]:
    """The files that paths, folders and patterns name, by name; of a folder, all files below it.

    Hidden ones (names with ``.`` or ``_`` in front) count only where a path names one.

    Args:
        patterns: Local or ``gs://``; ``*`` and ``?`` stay within a folder, ``**`` does not.
        option: Of the command, for what is said.

    Raises:
        InputError: One names nothing.
        StorageError: Storage failed for too long.
    """
    found: dict[str, SourceFile] = {}
    for pattern in patterns:
        files = _find(pattern)
        if not files:
            raise InputError(f"{option} {pattern}: names no file; write a path, a folder or a quoted pattern")
        found.update((file.uri, file) for file in files)
    return tuple(found[uri] for uri in sorted(found))


def _find(pattern: str) -> list[SourceFile]:
    if not _WILD.search(pattern.removeprefix("gs://")):
        own = [file for file in list_stored(parent_of(pattern)) if file.name == name_of(pattern)]
        if own:
            return [SourceFile(uri=pattern, num_bytes=own[0].num_bytes, version=own[0].version)]
        return _below(pattern, lambda name: True)
    wild = _WILD.search(pattern)
    assert wild is not None
    folder, _, rest = pattern[: wild.start()].rpartition("/")
    matches = _matcher(rest + pattern[wild.start() :])
    return _below(folder or ("/" if pattern.startswith("/") else "."), matches)


def _below(folder: str, matches: Callable[[str], object]) -> list[SourceFile]:
    return [
        SourceFile(uri=join(folder, file.name), num_bytes=file.num_bytes, version=file.version)
        for file in list_stored(folder, is_recursive=True)
        if matches(file.name) and not any(part.startswith((".", "_")) for part in file.name.split("/"))
    ]


def _matcher(pattern: str) -> Callable[[str], object]:
    """A pattern whose ``*`` and ``?`` do not cross folders; ``**`` does."""
    *folders, last = pattern.split("/")
    parts = [_ANY_FOLDERS if part == "**" else _expression(part) + "/" for part in folders]
    parts.append(f"{_ANY_FOLDERS}[^/]+" if last == "**" else _expression(last))
    return re.compile("".join(parts)).fullmatch


def _expression(part: str) -> str:
    translated = {"*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\[[^]/]+\]|.", part)
    return "".join(
        "[" + token[1:-1].replace("!", "^", token.startswith("[!")).replace("\\", r"\\") + "]"
        if len(token) > 1
        else translated.get(token, re.escape(token))
        for token in tokens
    )


class Readable(Protocol):
    """What can be read from its start to its end."""

    def read(self, num_bytes: int, /) -> bytes:
        """The next bytes; none at the end."""


@contextmanager
def open_stream(file: SourceFile, progress: Callable[[int], object]) -> Iterator[Readable]:
    """Opens a text file from its start, unpacked where it is packed.

    Args:
        file: Which.
        progress: Told after each read how many bytes of the file were read so far.

    Raises:
        InputError: It cannot be read, or is Parquet.
        StorageError: Storage failed for too long.
    """
    system, path = filesystem_of(file.uri)
    with explained(file.uri, "read"):
        with system.open_input_stream(path, compression=None) as peeked:
            start = peeked.read(4)
        if start == _PARQUET:
            raise InputError(f"{file.uri}: is Parquet, which the mapping's source.format does not say; mend either")
        packing = next((name for magic, name in _COMPRESSIONS.items() if start.startswith(magic)), None)
        # gs:// is far: a small buffer would ask for it in small parts.
        size = BLOCK_BYTES if is_gcs(file.uri) else None
        with system.open_input_stream(path, compression=None, buffer_size=size) as raw:
            counted = _Counted(raw, progress)
            yield counted if packing is None else pa.CompressedInputStream(counted, packing)


class _Counted:
    """A stream that tells how much of it was read; Arrow's own can tell only where it can seek."""

    closed = False

    def __init__(self, stream: pa.NativeFile, progress: Callable[[int], object]) -> None:
        self._stream, self._progress = stream, progress
        self._num_bytes = 0

    def read(self, num_bytes: int) -> bytes:
        data: bytes = self._stream.read(num_bytes)
        self._num_bytes += len(data)
        self._progress(self._num_bytes)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Who opened it closes it."""


def blocks(stream: Readable, file: str, quote: str | None, num_bytes: int | None = None) -> Iterator[Block]:
    """The stream's records in order, cut where a record ends.

    Args:
        stream: Text whose records end at a line's end.
        file: For what is said.
        quote: Encloses values that may hold line ends; None where there are none.
        num_bytes: How much to read at a time; `BLOCK_BYTES` when None.

    Raises:
        InputError: A record is longer than `MAX_RECORD_BYTES`, or the packed data is cut short.
    """
    rest, line = b"", 1
    while True:
        try:
            data = stream.read(num_bytes or BLOCK_BYTES)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise unreadable(file, line, error) from None
        if not data:
            break
        rest += data
        end = _end_of_records(rest, quote)
        if end:
            block, rest = Block(rest[:end], line), rest[end:]
            line += block.data.count(b"\n")
            yield block
        elif len(rest) > MAX_RECORD_BYTES:
            open_quote = f", or a {quote} is left open (source.quote: null reads quotes as text)" if quote else ""
            raise InputError(
                f"{file}, line {line}: a record is longer than {MAX_RECORD_BYTES // 1024**2} MiB{open_quote}; mend it"
            )
    if rest.strip():
        yield Block(rest, line)


def _end_of_records(data: bytes, quote: str | None) -> int:
    """Where the last whole record ends; a line's end within quotes, an odd number of them before it, is none."""
    end = data.rfind(b"\n")
    if quote is None:
        return end + 1
    mark = quote.encode()
    num_quotes = data.count(mark, 0, end + 1)
    while end >= 0 and num_quotes % 2:
        before = data.rfind(b"\n", 0, end)
        num_quotes -= data.count(mark, before + 1, end + 1)
        end = before
    return end + 1


def unreadable(file: str, line: int, error: Exception) -> InputError:
    """The line for what Arrow cannot unpack or parse."""
    reason = " ".join(str(error).split()).rstrip(". ")[:200]
    return InputError(
        f"{file}, from line {line} on: cannot be read ({reason}); the file is corrupt or cut short, or "
        "not what source says; write it again or mend source"
    )
