"""Whole imports: from files to days in the contract."""

import gzip
import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainer.errors import InputError
from trainer.windows.check import check_logs
from trainer.windows.hashing import hash_ids
from trainer.windows.importing import files, spilling
from trainer.windows.importing.files import find_files
from trainer.windows.importing.importing import Import
from trainer.windows.importing.loading import load_mapping, parse_mapping
from trainer.windows.importing.note import read_note
from trainer.windows.importing.summary import ImportSummary

EXAMPLES = Path(__file__).parents[4] / "docs" / "import"
HEADER = "visit,member,item,shown_at,rank,action,price"
LINES = [
    "s1,anna,lamp,2024-03-05 09:00:00,1,save,12.5",
    "s1,anna,chair,2024-03-05 09:00:00,2,,30",
    "s2,bert,lamp,2024-03-05 23:30:00,1,click,12.5",
    "s3,anna,table,2024-03-06 08:00:00,1,save,99",
    "s4,anna,sofa,2024-03-07 08:00:00,1,click,7",
]
MAPPING: dict[str, Any] = {
    "source": {"format": "csv"},
    "request_id": {"value": "visit", "kind": "text"},
    "user_id": {"value": "member", "kind": "text"},
    "pin_id": {"value": "item", "kind": "text"},
    "ts": "shown_at",
    "position": {"value": "rank", "first": 1},
    "labels": {"save": "action == 'save'", "click": "action in ['click', 'save']"},
    "pin_features": ["price", {"value": "log1p(price)", "fill": 0}],
    "history": {"length": 3, "from_labels": {"save": 2, "click": 1}},
}


def write_csv(folder: Path, lines: Iterable[str] = LINES, header: str = HEADER, name: str = "a.csv") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def imported(
    tmp_path: Path, source: Path, changes: dict[str, Any] | None = None, engagements: Path | None = None
) -> tuple[ImportSummary, list[dict[str, Any]]]:
    """The summary and all rows; the log is at ``<tmp_path>/out`` and obeys the contract."""
    mapping = parse_mapping({**MAPPING, **(changes or {})}, "m.yaml")
    own = [] if engagements is None else find_files([str(engagements)], "--engagements")
    out = tmp_path / "out"
    out.mkdir()
    summary = Import(mapping, "m.yaml", out).run(find_files([str(source)], "--from"), own)
    report = check_logs(mapping.logs(str(out)))
    assert not [problem for problem in report.problems if "no logs for" not in str(problem)]
    assert not list(out.glob(".*"))
    return summary, rows_of(out)


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(out.rglob("*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]


def refused(tmp_path: Path, source: Path, changes: dict[str, Any] | None = None) -> str:
    with pytest.raises(InputError) as raised:
        imported(tmp_path, source, changes)
    line = str(raised.value)
    assert "\n" not in line
    return line


def id_of(text: str) -> int:
    return int(hash_ids(pa.array([text]))[0].as_py())


def test_a_csv_becomes_a_log(tmp_path: Path) -> None:
    summary, rows = imported(tmp_path, write_csv(tmp_path / "in"))
    assert summary.days == {"2024-03-05": 3, "2024-03-06": 1, "2024-03-07": 1}
    assert (summary.num_rows, summary.num_users, summary.num_pins, summary.num_dropped) == (5, 2, 4, 0)
    assert summary.label_rates == {"save": 0.4, "click": 0.8}
    assert summary.mean_history == pytest.approx(3 / 5)
    first, second, _, third, fourth = rows
    assert first == {
        "request_id": id_of("s1"),
        "user_id": id_of("anna"),
        "pin_id": id_of("lamp"),
        "ts": datetime(2024, 3, 5, 9, tzinfo=UTC),
        "position": 0,
        "save": True,
        "click": True,
        "user_features": [0.0],
        "pin_features": [12.5, pytest.approx(2.6026897)],
        "history": [],
        "history_actions": [],
    }
    assert (second["position"], second["save"], second["click"], second["history"]) == (1, False, False, [])
    assert (third["history"], third["history_actions"]) == ([id_of("lamp")], [2])
    assert fourth["history"] == [id_of("table"), id_of("lamp")]
    assert read_note(str(tmp_path / "out")).keys["save"] == "labels.save"  # type: ignore[union-attr]


def test_the_order_of_rows_files_and_blocks_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    start = datetime(2024, 3, 5)
    lines = []
    for visit in range(300):
        shown = start + timedelta(minutes=rng.randrange(4 * 24 * 6) * 10)
        for rank in range(1, 4):
            action = rng.choice(["save", "click", "", ""])
            lines.append(f"v{visit},m{rng.randrange(12)},i{rng.randrange(30)},{shown},{rank},{action},1")
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    _, wanted = imported(tmp_path / "one", write_csv(tmp_path / "in", sorted(lines)))
    rng.shuffle(lines)
    for part in range(3):
        data = "\n".join([HEADER, *lines[part::3]]) + "\n"
        (tmp_path / "parts").mkdir(exist_ok=True)
        (tmp_path / "parts" / f"{part}.csv.gz").write_bytes(gzip.compress(data.encode()))
    monkeypatch.setattr(files, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(spilling, "BUFFER_BYTES", 5000)
    _, found = imported(tmp_path / "two", tmp_path / "parts")
    order = itemgetter("request_id", "position")
    assert sorted(found, key=order) == sorted(wanted, key=order)


def test_positions_follow_the_order_of_the_source_or_a_column(tmp_path: Path) -> None:
    lines = [
        "s1,anna,a,2024-03-05 09:00,9,,1",
        "s2,anna,b,2024-03-05 09:00,9,,1",
        "s1,anna,c,2024-03-05 09:00,9,,5",
        "s1,anna,d,2024-03-05 09:00,9,,3",
        "s1,anna,e,2024-03-05 09:00,9,,3",
    ]
    for place, position, wanted in (("one", {}, [0, 0, 1, 2, 3]), ("two", {"order_by": "-price"}, [3, 0, 0, 1, 2])):
        (tmp_path / place).mkdir()
        _, rows = imported(tmp_path / place, write_csv(tmp_path / "in", lines), {"position": position})
        assert [row["position"] for row in rows] == wanted


def test_a_slate_may_be_derived(tmp_path: Path) -> None:
    lines = [f",{member},i,2024-03-05 09:{minute}:00,1,,1" for member, minute in
             (("anna", "01"), ("anna", "29"), ("anna", "31"), ("bert", "01"))]  # fmt: skip
    slate = {"hash": ["member"], "within_minutes": 30}
    _, rows = imported(tmp_path, write_csv(tmp_path / "in", lines), {"request_id": slate})
    one, same, later, other = (row["request_id"] for row in rows)
    assert one == same
    assert len({one, later, other}) == 3


def test_ids_may_be_kept_and_hash_alike_in_every_format(tmp_path: Path) -> None:
    records = [{"visit": 1, "member": 7, "item": 12, "shown_at": "2024-03-05", "rank": 1, "action": "save", "price": 1}]
    kept = {
        name: {"value": value, "kind": "integer"} for name, value in (("request_id", "visit"), ("user_id", "member"))
    }
    source = tmp_path / "a"
    found = []
    for format_ in ("csv", "json", "parquet"):
        if format_ == "csv":
            write_csv(tmp_path, ["1,7,12,2024-03-05,1,save,1"], name="a")
        elif format_ == "json":
            source.write_text(json.dumps(records[0]))
        else:
            pq.write_table(pa.Table.from_pylist(records), source)
        (tmp_path / format_).mkdir()
        _, rows = imported(tmp_path / format_, source, {**kept, "source": {"format": format_}})
        found.append(rows)
    assert found[0] == found[1] == found[2]
    (row,) = found[0]
    assert (row["request_id"], row["user_id"], row["pin_id"]) == (1, 7, id_of("12"))


def test_a_history_may_be_taken_from_the_source(tmp_path: Path) -> None:
    header = HEADER + ",past,how"
    lines = [f"{LINES[0]},lamp|sofa|table|chair,1|2|3|4", f"{LINES[1]},,", f"{LINES[2]},sofa,9"]
    past = {"value": "past", "separator": "|", "actions": "how", "oldest_first": True}
    history = {"length": 3, "from_column": past}
    _, rows = imported(tmp_path, write_csv(tmp_path / "in", lines, header), {"history": history})
    assert [row["history"] for row in rows] == [[id_of(pin) for pin in ("chair", "table", "sofa")], [], [id_of("sofa")]]
    assert [row["history_actions"] for row in rows] == [[4, 3, 2], [], [9]]


def test_lists_may_be_features_and_histories(tmp_path: Path) -> None:
    records = [
        {"visit": 1, "member": "a", "item": 3, "shown_at": 1_709_600_000_000, "v": [1.0, 2.0], "past": [5, 6, 7, 8]},
        {"visit": 1, "member": "a", "item": 4, "shown_at": 1_709_600_000_000, "v": None, "past": None},
    ]
    source = tmp_path / "a.jsonl"
    source.write_text("\n".join(map(json.dumps, records)))
    changes: dict[str, Any] = {
        "source": {"format": "json"},
        "request_id": "visit",
        "pin_id": "item",
        "ts": {"value": "shown_at", "format": "ms"},
        "position": {},
        "labels": {"save": "item == 3"},
        "pin_features": [{"value": "v", "length": 2, "fill": -1}, "1 + 1"],
        "history": {"length": 2, "from_column": {"value": "past", "action": 3}},
    }
    summary, rows = imported(tmp_path, source, changes)
    assert [row["pin_features"] for row in rows] == [[1.0, 2.0, 2.0], [-1.0, -1.0, 2.0]]
    assert [row["history"] for row in rows] == [[5, 6], []]
    assert [row["history_actions"] for row in rows] == [[3, 3], []]
    assert summary.empty_history_share == 0.5


def test_what_is_known_later_enters_histories_later(tmp_path: Path) -> None:
    lines = [
        f"s{n},anna,i{n},2024-03-0{5 + n // 2} {hour}:00:00,1,save,1" for n, hour in enumerate(("10", "23", "00", "12"))
    ]
    history = {"length": 3, "known_after_s": 2 * 3600}
    _, rows = imported(tmp_path, write_csv(tmp_path / "in", lines), {"history": history})
    assert [row["history"] for row in rows] == [
        [],
        [id_of("i0")],
        [id_of("i0")],
        [id_of("i2"), id_of("i1"), id_of("i0")],
    ]


def test_engagements_of_their_own_give_labels_and_histories(tmp_path: Path) -> None:
    summary, rows = imported_example(tmp_path, "events", "jsonl")
    events = [json.loads(line) for line in (EXAMPLES / "events.jsonl").read_text().splitlines()]
    engaged = {
        kind: {(e["request"], id_of(e["pin"])) for e in events if e["event"] == kind} for kind in ("save", "click")
    }
    assert engaged["save"]
    for row in rows:
        for kind, pairs in engaged.items():
            assert row[kind] == ((row["request_id"], row["pin_id"]) in pairs)
        ts_ms = row["ts"].timestamp() * 1000
        before = [
            (e["time_ms"], id_of(e["pin"]), 2 if e["event"] == "save" else 1)
            for e in events
            if e["event"] != "impression" and id_of(e["user"]["id"]) == row["user_id"] and e["time_ms"] < ts_ms - 0.5
        ]
        wanted = sorted(before, reverse=True)[:20]
        assert row["history"] == [pin for _, pin, _ in wanted]
        assert row["history_actions"] == [action for _, _, action in wanted]
    assert summary.num_engagements == summary.num_joined == sum(e["event"] != "impression" for e in events)
    assert rows[0]["text"]


def test_engagements_may_lie_in_files_of_their_own(tmp_path: Path) -> None:
    engaged = tmp_path / "engaged.jsonl"
    records = [
        {"who": "anna", "what": "chair", "at": "2024-03-06T01:00:00Z"},  # the day after, in time
        {"who": "anna", "what": "lamp", "at": "2024-03-08T00:00:00Z"},  # too late
        {"who": "zoe", "what": "lamp", "at": "2024-03-05T10:00:00Z"},  # was shown nothing
    ]
    engaged.write_text("\n".join(map(json.dumps, records)))
    own = {
        "source": {"format": "json"},
        "user_id": {"value": "who", "kind": "text"},
        "pin_id": {"value": "what", "kind": "text"},
        "ts": "at",
        "labels": {"save": True},
        "within_hours": 24,
    }
    changes = {"labels": {}, "engagements": own, "history": {"length": 3}}
    summary, rows = imported(tmp_path, write_csv(tmp_path / "in"), changes, engaged)
    assert [row["save"] for row in rows] == [False, True, False, False, False]
    assert [len(row["history"]) for row in rows] == [0, 0, 0, 1, 1]
    assert (summary.num_engagements, summary.num_joined) == (3, 1)
    assert summary.days == {"2024-03-05": 3, "2024-03-06": 1, "2024-03-07": 1}


def imported_example(tmp_path: Path, name: str, suffix: str) -> tuple[ImportSummary, list[dict[str, Any]]]:
    mapping = load_mapping(EXAMPLES / f"{name}.yaml")
    out = tmp_path / name
    out.mkdir()
    summary = Import(mapping, f"{name}.yaml", out).run(find_files([str(EXAMPLES / f"{name}.{suffix}")], "--from"))
    assert check_logs(mapping.logs(str(out))).is_sound
    return summary, rows_of(out)


def test_the_example_of_a_csv_is_sound(tmp_path: Path) -> None:
    summary, rows = imported_example(tmp_path, "visits", "csv")
    assert summary.num_rows == len(rows) == len((EXAMPLES / "visits.csv").read_text().splitlines()) - 1
    assert summary.gaps == ()
    assert set(summary.label_rates) == {"save", "click", "hide"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("s1,,lamp,2024-03-05 09:00,1,,1", "line 7: user_id: is null (1 row)"),
        ("s1,anna,lamp,noon,1,,1", "line 7: ts: 'noon' is no ISO time (1 row)"),
        ("s1,anna,lamp,1970-01-01,1,,1", "line 7: ts: '1970-01-01' is outside 1990 to 2099"),
        ("s1,anna,lamp,2024-03-05 09:00,first,,1", "line 7: position: 'first' is no integer of 1 to 32768"),
        ("s1,anna,lamp,2024-03-05 09:00,0,,1", "line 7: position: '0' is no integer of 1"),
        ("s1,anna,lamp,2024-03-05 09:00,1,,cheap", "line 7: pin_features.0: 'cheap' is no number"),
        ("s1,anna,lamp,2024-03-05 09:00,1,,", "line 7: pin_features.0: is null (fill: gives it a value)"),
        ("s1,anna,lamp,2024-03-05 09:00,1,,1e99", "line 7: pin_features.0: '1e99' is no finite number of 32 bits"),
        ("s1,anna,lamp", "line 7: source: 3 values where there are 7 columns"),
    ],
)
def test_a_bad_row_is_refused_with_its_place_or_dropped_and_counted(tmp_path: Path, line: str, told: str) -> None:
    source = write_csv(tmp_path / "in", [*LINES, line])
    refusal = refused(tmp_path, source)
    assert told in refusal
    assert "set on_bad_row: drop" in refusal
    (tmp_path / "again").mkdir()
    summary, rows = imported(tmp_path / "again", source, {"on_bad_row": "drop"})
    assert (len(rows), summary.num_dropped) == (5, 1)
    assert told.split(" (1 row")[0] in " ".join(each.first for each in summary.dropped)


def test_bad_rows_are_all_counted_before_they_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 100)
    bad = ["s1,,lamp,2024-03-05,1,,1", "s1,anna,lamp,noon,1,,1"] * 3
    mixed = [line for pair in zip(LINES * 2, bad, strict=False) for line in pair]
    refusal = refused(tmp_path, write_csv(tmp_path / "in", mixed))
    assert "user_id: is null (3 rows)" in refusal
    assert "; also " in refusal
    assert "ts: 'noon' is no ISO time (3 rows); mend them" in refusal


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"user_id": "member"}, "line 2: user_id: 'anna' is no integer of 0 or more (kind: text takes any id)"),
        ({"ts": {"value": "shown_at", "format": "s"}}, "line 2: ts: '2024-03-05 09:00:00' is no number of s"),
        (
            {"labels": {"save": "actoin == 'save'", "click": "1"}},
            "m.yaml: labels.save: `actoin == 'save'`, character 1",
        ),
        ({"labels": {"save": "action > 3", "click": "1"}}, "labels.save: 'action' is not a number"),
        ({"labels": {"save": "action", "click": "1"}}, "labels.save: 'save' is not true or false"),
        ({"labels": {"save": "action ==", "click": "1"}}, "m.yaml: labels.save: `action ==`, character"),
        ({"pin_features": ["item"]}, "line 2: pin_features.0: 'lamp' is no number"),
        ({"source": {"format": "csv", "where": "action == 'nope'"}}, "holds an impression that source.where takes"),
        ({"ts": {"value": "shown_at", "time_zone": "Mars"}}, "m.yaml: ts.time_zone: 'Mars'"),
        ({"source": {"format": "json"}}, "a.csv, line 1: cannot be read"),
        ({"source": {"format": "parquet"}}, "a.csv: cannot be read as Parquet"),
        ({"image": "item"}, "image: is a text; a picture is a column of bytes"),
    ],
)
def test_a_mapping_that_does_not_fit_is_told(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    assert told in refused(tmp_path, write_csv(tmp_path / "in"), changes)
    assert not list((tmp_path / "out").rglob("*.parquet"))


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}])
@pytest.mark.parametrize(
    ("key", "section"),
    [
        ("request_id", {"value": "odd"}),
        ("request_id", {"hash": ["odd"]}),
        ("user_id", {"value": "odd", "kind": "text"}),
        ("ts", {"value": "odd"}),
        ("ts", {"value": "odd", "format": "s"}),
        ("ts", {"value": "odd", "format": "%Y"}),
        ("position", {"value": "odd"}),
        ("position", {"order_by": "odd"}),
        ("labels", {"save": "odd"}),
        ("pin_features", ["odd"]),
        ("propensity", "odd"),
        ("text", "odd"),
        ("image", "odd"),
        ("history", {"from_column": {"value": "odd.a"}}),
    ],
)
def test_a_column_of_an_odd_kind_is_told(tmp_path: Path, key: str, section: Any, value: object) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text(json.dumps({"odd": value, "visit": "s", "member": "m", "item": "i", "shown_at": "2024-03-05"}))
    plain: dict[str, Any] = {"source": {"format": "json"}, "position": {}, "labels": {"save": True}}
    plain |= {"pin_features": ["1"], "history": {}}
    assert key in refused(tmp_path, source, {**plain, key: section})


def test_a_file_with_another_header_is_told_before_any_row_is_read(tmp_path: Path) -> None:
    write_csv(tmp_path / "in", ["nonsense"])
    write_csv(tmp_path / "in", LINES, HEADER.replace("action", "deed"), "b.csv")
    told = refused(tmp_path, tmp_path / "in")
    assert "b.csv has no column 'action'" in told


def test_a_slate_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.windows.importing.days.MAX_POSITION", 1)
    lines = [f"s1,anna,i{n},2024-03-05,1,,1" for n in range(4)]
    told = refused(tmp_path, write_csv(tmp_path / "in", lines), {"position": {}})
    assert "has 4 rows on 2024-03-05, more than 2; mend request_id" in told
