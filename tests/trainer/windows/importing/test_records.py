import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainer.errors import InputError
from trainer.windows.importing import files
from trainer.windows.importing.expressions import Expression
from trainer.windows.importing.files import find_files
from trainer.windows.importing.mapping import SourceConfig
from trainer.windows.importing.records import Chunk, Reader

CSV = 'a,b,c\n1,x,\n2,"y\ny",\n\n3,"say ""hi""",z\n'


def chunks(path: Path, source: SourceConfig, *names: str) -> list[Chunk]:
    reader = Reader(source, [Expression(name, name) for name in names])
    (file,) = find_files([str(path)], "--from")
    reader.check_header(file)
    done = list(reader.read(file, lambda num_bytes: None))
    reader.check_seen()
    return done


def rows(path: Path, source: SourceConfig, *names: str) -> list[tuple[Any, ...]]:
    found = chunks(path, source, *names)
    return [row for chunk in found for row in zip(*(chunk.columns[name].to_pylist() for name in names), strict=True)]


def csv_source(**settings: Any) -> SourceConfig:
    return SourceConfig(format="csv", **settings)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("block_bytes", [4, 7, 1000])
def test_csv_is_text_whatever_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block_bytes)
    path = write(tmp_path / "a.csv", CSV)
    assert rows(path, csv_source(), "a", "b", "c") == [
        ("1", "x", None),
        ("2", "y\ny", None),
        ("3", 'say "hi"', "z"),
    ]
    places = [chunk.place(index) for chunk in chunks(path, csv_source(), "a") for index in range(chunk.num_rows)]
    assert places == [f"{path}, line {line}" for line in (2, 3, 6)]


@pytest.mark.parametrize(
    ("content", "source", "wanted"),
    [
        ("a;b\n1;2\n", csv_source(delimiter=";"), [("1", "2")]),
        ("a\tb\r\n1\t2\r\n", csv_source(delimiter="\t"), [("1", "2")]),
        ("1,2\n3,4", csv_source(columns=("a", "b")), [("1", "2"), ("3", "4")]),
        ("\ufeffa,b\n1,2\n", csv_source(), [("1", "2")]),
        (" a , b \n1,2\n", csv_source(), [("1", "2")]),
        ("b,a\n1,-\n", csv_source(nulls=("-",)), [(None, "1")]),
        ("a,b\n'1,5',\"\n", csv_source(quote="'"), [("1,5", '"')]),
        ('a,b\n5",6"\n', csv_source(quote=None), [('5"', '6"')]),
        ("a,b\n\u00e9,\u00fc\n".encode("latin-1"), csv_source(encoding="latin-1"), [("\u00e9", "\u00fc")]),
        ("a,b\n", csv_source(), []),
        ("", csv_source(), []),
    ],
)
def test_kinds_of_csv(tmp_path: Path, content: str | bytes, source: SourceConfig, wanted: list[Any]) -> None:
    assert rows(write(tmp_path / "a.csv", content), source, "a", "b") == wanted


def test_lines_that_do_not_fit_are_told_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b\n1,2\n3\n\n4,5,6\n7,8\n")
    (chunk,) = chunks(path, csv_source(), "a")
    assert chunk.columns["a"].to_pylist() == ["1", "7"]
    assert [chunk.place(index) for index in range(2)] == [f"{path}, line 2", f"{path}, line 6"]
    assert [line for line, _ in chunk.malformed] == [3, 5]
    assert chunk.malformed[0].what == "1 values where there are 2 columns"


JSON = [
    {"a": 1, "t": "2024-01-01T00:00:00Z", "user": {"id": 7}},
    {"a": None, "t": "2024-01-01"},
    {"a": 2.5, "user": {"id": None, "since": "2020-01-01"}, "x": [1]},
]


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("block_bytes", [40, 10_000])
def test_json_lines_keep_kinds_and_leave_times_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes], block_bytes: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block_bytes)
    path = write(tmp_path / "a.jsonl", pack("\n\n".join(json.dumps(record) for record in JSON).encode()))
    found = rows(path, SourceConfig(format="json"), "a", "t", "user")
    assert [row[0] for row in found] == [1, None, 2.5]
    assert [row[1] for row in found] == ["2024-01-01T00:00:00Z", "2024-01-01", None]
    assert [(row[2] or {}).get("id") for row in found] == [7, None, None]
    last = chunks(path, SourceConfig(format="json"), "a")[-1]
    assert last.place(last.num_rows - 1) == f"{path}, line 5"


def test_a_key_of_no_record_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"action": 1}\n')
    with pytest.raises(InputError, match="the source has no column 'actoin'; write 'action'"):
        chunks(path, SourceConfig(format="json"), "actoin")


def test_a_field_of_no_record_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"user": {"id": 1}}\n')
    expression = Expression("user.idd == 1", "labels.save")
    reader = Reader(SourceConfig(format="json"), [expression])
    (file,) = find_files([str(path)], "--from")
    for chunk in reader.read(file, lambda num_bytes: None):
        assert expression.on(chunk.columns, chunk.num_rows).values.to_pylist() == [None]
    with pytest.raises(InputError, match=r"labels.save: .*, character 1: no record has 'user.idd'"):
        reader.check_seen()


def test_parquet_is_read_in_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(70_000), "b": ["x"] * 70_000}), path)
    found = chunks(path, SourceConfig(format="parquet"), "a")
    assert [chunk.num_rows for chunk in found] == [65_536, 4_464]
    assert found[1].place(3) == f"{path}, row 65539"
    assert list(found[0].columns) == ["a"]


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def packed_csv() -> bytes:
    return gzip.compress("\n".join(["a,b", *(f"{number},{number * 7919 % 1013}" for number in range(5000))]).encode())


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": range(1000)}), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("content", "source", "told"),
    [
        (b"b\n1\n", csv_source(), "a: `a`, character 1: {path} has no column 'a'; choose one of b"),
        (b"a,a\n1,2\n", csv_source(), "line 1: column 'a' appears twice"),
        (b"a\n\xff\xfe\n", csv_source(), "from line 2 on: holds bytes that are not utf-8; set source.encoding"),
        (b"a\n\xff\xfe\n", csv_source(encoding="ascii"), "from line 2 on: holds bytes that are not ascii"),
        (cut(packed_csv()), csv_source(), "cannot be read ("),
        (parquet_bytes(), csv_source(), "is Parquet, which the mapping's source.format does not say"),
        (b'{"a": 1}\n{"a": "x"}\n', SourceConfig(format="json"), "line 2: cannot be read (Column(/a) changed from"),
        (b'{"a": 1}\n\n{"a":\n', SourceConfig(format="json"), "line 3: cannot be read"),
        (b"a,b\n1,2\n", SourceConfig(format="json"), "line 1: cannot be read"),
        (b'[{"a": 1}]\n', SourceConfig(format="json"), "line 1: cannot be read"),
        (cut(parquet_bytes()), SourceConfig(format="parquet"), "cannot be read as Parquet"),
        (b"a\n1\n", SourceConfig(format="parquet"), "cannot be read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(
    tmp_path: Path, content: bytes, source: SourceConfig, told: str
) -> None:
    path = write(tmp_path / "file", content)
    with pytest.raises(InputError) as raised:
        chunks(path, source, "a")
    assert told.format(path=path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_quote_left_open_ends_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 100)
    monkeypatch.setattr(files, "MAX_RECORD_BYTES", 1000)
    path = write(tmp_path / "a.csv", 'a,b\n1,"x\n' + "2,y\n" * 1000)
    with pytest.raises(InputError, match='line 2: a record is longer than 0 MiB, or a " is left open'):
        chunks(path, csv_source(), "a")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", CSV)
    reader = Reader(csv_source(), [Expression("a", "a")])
    (file,) = find_files([str(path)], "--from")
    with pytest.raises(InputError, match="changed while it was read"):
        for _ in reader.read(file, lambda num_bytes: None):
            path.write_text(CSV + "4,x,\n")


def test_files_are_found_by_path_folder_and_pattern(tmp_path: Path) -> None:
    for name in ("a/1.csv", "a/2.csv", "a/.hidden.csv", "b/c/3.csv", "b/_temporary/4.csv", "b/c/5.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    def found(*patterns: str) -> list[str]:
        uris = [file.uri for file in find_files([f"{tmp_path}/{pattern}" for pattern in patterns], "--from")]
        return [str(Path(uri).relative_to(tmp_path)) for uri in uris]

    assert found("a/2.csv", "a/1.csv", "a/1.csv") == ["a/1.csv", "a/2.csv"]
    assert found("a") == ["a/1.csv", "a/2.csv"]
    assert found("*/*.csv") == ["a/1.csv", "a/2.csv"]
    assert found("**/*.csv") == ["a/1.csv", "a/2.csv", "b/c/3.csv"]
    assert found("b/?/*") == ["b/c/3.csv", "b/c/5.txt"]
    assert found("a/[2-9].csv", "b/**") == ["a/2.csv", "b/c/3.csv", "b/c/5.txt"]
    with pytest.raises(InputError, match=r"--from .*: names no file"):
        found("nope/*.csv")
