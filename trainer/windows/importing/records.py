"""A source's files as chunks of columns, in the order of files and records: CSV, JSON lines and Parquet.

CSV holds text only: what a value is, the mapping says, not a guess that another file might not bear out. JSON and
Parquet keep their kinds. Times in JSON stay text, since Arrow's own reading of them forgets their offsets.

Shape legend: N rows of a chunk.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as pq

from trainer.errors import InputError
from trainer.storage.filesystem import open_parquet
from trainer.windows.arrays import one_array
from trainer.windows.importing.expressions import Expression
from trainer.windows.importing.files import Block, SourceFile, blocks, open_stream, unreadable
from trainer.windows.importing.mapping import SourceConfig

PARQUET_ROWS = 65_536
_PARQUET_BYTES = 32 * 1024**2
_HEADER_BYTES = 65_536

Progress = Callable[[int], object]


class Malformed(NamedTuple):
    """A CSV line with too few or too many values; `line` counts from 1."""

    line: int
    what: str


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Records in a row.

    Attributes:
        file: Where they are from.
        columns: The columns that the mapping reads, (N,) each.
        num_rows: N.
        place: Where the record of an index lies, in words.
        malformed: Lines between them that are none.
    """

    file: str
    columns: dict[str, pa.Array]
    num_rows: int
    place: Callable[[int], str]
    malformed: tuple[Malformed, ...] = ()


@dataclass
class Reader:
    """Reads files of one source.

    Args:
        source: What they are.
        expressions: All that will be computed on their columns.
    """

    source: SourceConfig
    expressions: Sequence[Expression]
    _unseen: set[str] = field(init=False)
    _text_columns: dict[str, pa.DataType] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._names = list(dict.fromkeys(name for expression in self.expressions for name in expression.columns))
        self._unseen = set(self._names)
        self._known: dict[str, None] = {}

    def read(self, file: SourceFile, progress: Progress) -> Iterator[Chunk]:
        """The file's chunks.

        Args:
            file: Which.
            progress: Told how many of its bytes were read so far.

        Raises:
            InputError: It cannot be read, or lacks a column.
            StorageError: Storage failed for too long.
        """
        read = {"csv": self._read_csv, "json": self._read_json, "parquet": self._read_parquet}
        if file.num_bytes:
            yield from _ahead(read[self.source.format](file, progress))
        progress(file.num_bytes)
        file.check_unchanged()

    def check_header(self, file: SourceFile) -> None:
        """Holds a file's columns against those that are wanted, before any row is read; JSON lines have no header.

        Raises:
            InputError: A column is missing.
        """
        if self.source.format == "parquet":
            with _parquet(file.uri) as parquet:
                self._check(parquet.schema_arrow.names, file.uri)
        elif self.source.format == "csv" and file.num_bytes:
            with open_stream(file, lambda _: None) as stream:
                first = next(blocks(stream, file.uri, self.source.quote, _HEADER_BYTES), None)
            if first is not None:
                self._header(first, file.uri)

    def check_seen(self) -> None:
        """After the last file: what no record had is a mistake in the mapping.

        Raises:
            InputError: There is one.
        """
        for expression in self.expressions:
            expression.check_fields()
        if self.source.format == "json" and self._known:
            self._check([name for name in self._known if name not in self._unseen], "the source")

    def _check(self, names: Sequence[str], file: str) -> None:
        for expression in self.expressions:
            expression.check_columns(names, file)

    def _header(self, block: Block, file: str) -> tuple[list[str], Block]:
        """Names of a CSV file's columns, and the block without them."""
        data = block.data.removeprefix(b"\xef\xbb\xbf")
        if self.source.columns is not None:
            names, rest = list(self.source.columns), Block(data, 1)
        else:
            end = _end_of_first(data, self.source.quote)
            text = _decoded(data[:end], self.source.encoding, file, 1)
            lines = csv.reader(
                [text],
                delimiter=self.source.delimiter,
                quotechar=self.source.quote or '"',
                quoting=csv.QUOTE_NONE if self.source.quote is None else csv.QUOTE_MINIMAL,
            )
            names = [name.strip() for name in next(lines, [])]
            rest = Block(data[end:], 1 + data[:end].count(b"\n"))
        twice = next((name for name in names if names.count(name) > 1 and name in self._names), None)
        if twice is not None:
            raise InputError(f"{file}, line 1: column '{twice}' appears twice; rename one, or set source.columns")
        self._check(names, file)
        return names, rest

    def _read_csv(self, file: SourceFile, progress: Progress) -> Iterator[Chunk]:
        with open_stream(file, progress) as stream:
            found = blocks(stream, file.uri, self.source.quote)
            first = next(found, None)
            if first is None:
                return
            names, rest = self._header(first, file.uri)
            for block in chain([rest], found):
                if block.data.strip():
                    yield self._parse_csv(block, names, file.uri)

    def _parse_csv(self, block: Block, names: Sequence[str], file: str) -> Chunk:
        data = block.data
        if self.source.encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
            data = _decoded(data, self.source.encoding, file, block.first_line).encode()
        invalid: list[arrow_csv.InvalidRow] = []

        def skip(row: arrow_csv.InvalidRow) -> str:
            invalid.append(row)
            return "skip"

        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(data),
                # One thread of Arrow's: only so does it say which row is invalid.
                read_options=arrow_csv.ReadOptions(
                    column_names=list(names), use_threads=False, block_size=len(data) + 1
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.source.delimiter,
                    quote_char=self.source.quote or False,
                    newlines_in_values=self.source.quote is not None,
                    invalid_row_handler=skip,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=self._names,
                    column_types={name: pa.string() for name in self._names},
                    null_values=list(self.source.nulls),
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            if "UTF8" in str(error):
                raise _undecodable(file, block.first_line, self.source.encoding) from None
            raise unreadable(file, block.first_line, error) from None
        skipped = sorted(row.number - 1 for row in invalid)
        lines = _Lines(data, block.first_line, self.source.quote)
        return Chunk(
            file=file,
            columns=_columns(table),
            num_rows=table.num_rows,
            place=lambda row: f"{file}, line {lines.of(_raw_row(row, skipped))}",
            malformed=tuple(
                Malformed(
                    lines.of(row.number - 1),
                    f"{row.actual_columns} values where there are {row.expected_columns} columns",
                )
                for row in invalid
            ),
        )

    def _read_json(self, file: SourceFile, progress: Progress) -> Iterator[Chunk]:
        with open_stream(file, progress) as stream:
            for block in blocks(stream, file.uri, None):
                if block.data.strip():
                    yield self._parse_json(block, file.uri)

    def _parse_json(self, block: Block, file: str) -> Chunk:
        data = block.data.removeprefix(b"\xef\xbb\xbf")
        lines = _Lines(data, block.first_line, None)
        table = self._json_table(data, lines, file)
        times = {name: _times_as_text(kind) for name, kind in zip(table.column_names, table.schema.types, strict=True)}
        texts = {
            name: kind for name, kind in times.items() if name in self._names and kind != table.schema.field(name).type
        }
        if texts:
            self._text_columns.update(texts)
            table = self._json_table(data, lines, file)
        self._known.update(dict.fromkeys(table.column_names))
        self._unseen -= set(table.column_names)
        columns = _columns(table.select([name for name in self._names if name in table.column_names]))
        nowhere = {name: pa.nulls(table.num_rows) for name in self._names if name not in columns}
        return Chunk(
            file=file,
            columns={**columns, **nowhere},
            num_rows=table.num_rows,
            place=lambda row: f"{file}, line {lines.of(row)}",
        )

    def _json_table(self, data: bytes, lines: "_Lines", file: str) -> pa.Table:
        explicit = pa.schema(list(self._text_columns.items())) if self._text_columns else None
        try:
            return arrow_json.read_json(
                pa.BufferReader(data),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=arrow_json.ParseOptions(explicit_schema=explicit),
            )
        except pa.ArrowInvalid as error:
            reason, _, row = " ".join(str(error).split()).partition(" in row ")
            line = lines.of(int(row)) if row.isdigit() else lines.first_line
            raise InputError(
                f"{file}, line {line}: cannot be read ({reason.removeprefix('JSON parse error: ').rstrip('. ')}); JSON "
                "lines hold one record a line, a key's values all of one kind; mend that line"
            ) from None

    def _read_parquet(self, file: SourceFile, progress: Progress) -> Iterator[Chunk]:
        with _parquet(file.uri) as parquet:
            self._check(parquet.schema_arrow.names, file.uri)
            num_read, num_rows = 0, max(parquet.metadata.num_rows, 1)
            batches = parquet.iter_batches(_batch_rows(parquet.metadata), columns=self._names)
            while (batch := _next_batch(batches, file.uri, num_read)) is not None:
                first = num_read
                yield Chunk(
                    file=file.uri,
                    columns=dict(zip(batch.schema.names, batch.columns, strict=True)),
                    num_rows=batch.num_rows,
                    place=lambda row, first=first: f"{file.uri}, row {first + row}",  # type: ignore[misc]
                )
                num_read += batch.num_rows
                progress(file.num_bytes * num_read // num_rows)


def _ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same, the next one read on a thread of its own while one is worked on."""
    with ThreadPoolExecutor(1, "importing") as pool:
        pending = pool.submit(next, chunks, None)
        while (chunk := pending.result()) is not None:
            pending = pool.submit(next, chunks, None)
            yield chunk


@contextmanager
def _parquet(uri: str) -> Iterator[pq.ParquetFile]:
    try:
        with open_parquet(uri) as parquet:
            yield parquet
    except (pa.ArrowException, OSError) as error:
        raise _not_parquet(uri, error) from None


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Fewer where rows are long, as those with pictures are."""
    num_bytes = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    return max(1, min(PARQUET_ROWS, int(_PARQUET_BYTES * metadata.num_rows // max(num_bytes, 1))))


def _next_batch(batches: Iterator[pa.RecordBatch], uri: str, row: int) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (pa.ArrowException, OSError) as error:
        raise _not_parquet(f"{uri}, from row {row} on", error) from None


def _not_parquet(place: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split()).rstrip(". ")[:200]
    return InputError(
        f"{place}: cannot be read as Parquet ({reason}); the file is corrupt, cut short or of another format; write it "
        "again or mend source.format"
    )


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    return {name: one_array(table[name]) for name in table.column_names}


def _times_as_text(kind: pa.DataType) -> pa.DataType:
    """The kind with text where Arrow saw times."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_times_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, _times_as_text(part.type)) for part in kind])
    return kind


@dataclass(frozen=True)
class _Lines:
    """Tells which line a record of a block begins on; blank lines hold none. Asked only when one is at fault."""

    data: bytes
    first_line: int
    quote: str | None

    def of(self, record: int) -> int:
        mark = (self.quote or "").encode()
        is_open, found = False, -1
        for number, text in enumerate(self.data.split(b"\n")):
            if not is_open and text.strip():
                found += 1
                if found == record:
                    return self.first_line + number
            if mark and text.count(mark) % 2:
                is_open = not is_open
        return self.first_line


def _raw_row(row: int, skipped: Sequence[int]) -> int:
    """The index among all lines of a row among the sound ones."""
    for index in skipped:
        row += index <= row
    return row


def _end_of_first(data: bytes, quote: str | None) -> int:
    """Where the first record ends."""
    mark, start = (quote or "").encode(), 0
    while (end := data.find(b"\n", start)) >= 0:
        if not mark or data.count(mark, 0, end) % 2 == 0:
            return end + 1
        start = end + 1
    return len(data)


def _decoded(data: bytes, encoding: str, file: str, line: int) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise _undecodable(file, line + data.count(b"\n", 0, error.start), encoding) from None


def _undecodable(file: str, line: int, encoding: str) -> InputError:
    return InputError(
        f"{file}, from line {line} on: holds bytes that are not {encoding}; set source.encoding, such as latin-1"
    )
