"""The log contract: one row is one impression, a pin shown to a user in a slate.

A log lies in ``<logs.uri>/dt=YYYY-MM-DD/*.parquet``, one folder a UTC day. Everything in a row was known at ``ts``;
labels came after. This module is the contract's only definition: `arrow_schema` says what a log looks like,
`type_problems` and `value_problems` hold one against it. Each problem is one line: the file, the column, the row
(counted from 0), the remedy.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trainer.recipe import LogsConfig

ID_COLUMNS = ("request_id", "user_id", "pin_id")
FEATURE_COLUMNS = ("user_features", "pin_features")
EXTRA_TYPES = {"propensity": pa.float32(), "image": pa.binary(), "text": pa.string()}


def arrow_schema(logs: LogsConfig, extras: Sequence[str] = ()) -> pa.Schema:
    """The columns of a log, in the order in which they are written. No column holds nulls.

    Args:
        logs: Names the label columns; its feature lengths are for `value_problems`, Arrow's types do not hold them.
        extras: Optional columns to include, among ``propensity``, ``image`` and ``text``.

    Returns:
        ``request_id`` (the slate), ``user_id`` and ``pin_id`` int64, not negative; ``ts`` timestamp[us, UTC];
        ``position`` int16, 0 is the top; one bool a label; ``user_features`` and ``pin_features`` list<float32> of
        fixed length; ``history`` list<int64>, the user's last engaged pins, most recent first, with ``history_actions``
        list<int8> of the same length, not negative; then, where asked for, ``propensity`` float32 in (0, 1], ``image``
        binary and ``text`` string.
    """
    unknown = set(extras) - set(EXTRA_TYPES)
    assert not unknown, f"no such optional columns: {sorted(unknown)}"
    columns = {
        "request_id": pa.int64(),
        "user_id": pa.int64(),
        "pin_id": pa.int64(),
        "ts": pa.timestamp("us", tz="UTC"),
        "position": pa.int16(),
        **{label: pa.bool_() for label in logs.labels},
        "user_features": pa.list_(pa.float32()),
        "pin_features": pa.list_(pa.float32()),
        "history": pa.list_(pa.int64()),
        "history_actions": pa.list_(pa.int8()),
        **{name: kind for name, kind in EXTRA_TYPES.items() if name in extras},
    }
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


def type_problems(found: pa.Schema, wanted: pa.Schema, file: str) -> dict[str, str]:
    """What is wrong with a file's columns before a row is read.

    Encodings of one type pass (large and fixed-size lists, large, viewed and dictionary strings); columns that the
    contract does not know are ignored.

    Returns:
        One line for each column that is missing, appears twice or has another type, by column.
    """
    problems = {}
    for field in wanted:
        count = found.names.count(field.name)
        if count == 0:
            problems[field.name] = f"{file}: column '{field.name}' is missing; add it as {_words(field.type)}"
        elif count > 1:
            problems[field.name] = f"{file}: column '{field.name}' appears {count} times; keep one of them"
        elif _plain(found.field(field.name).type) != field.type:
            kind = _words(found.field(field.name).type)
            problems[field.name] = f"{file}: column '{field.name}' is {kind}; cast it to {_words(field.type)}"
    return problems


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that the contract names for what `kind` encodes."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.list_(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _words(kind: pa.DataType) -> str:
    """`kind` in the words of the contract: ``list<float32>`` where Arrow says ``list<item: float>``."""
    if pa.types.is_list(kind):
        return f"list<{_words(kind.value_type)}>"
    return {"float": "float32", "double": "float64", "halffloat": "float16"}.get(str(kind), str(kind))


class _Finding(NamedTuple):
    """Rows of one column that break one rule; `bad_rows` is an integer array, ascending."""

    column: str
    bad_rows: pa.Array
    what: str
    remedy: str

    def line(self, file: str) -> str:
        rows = self.bad_rows.unique()
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        return f"{file}: column '{self.column}', row {rows[0]}{more}: {self.what}; {self.remedy}"


def value_problems(table: pa.Table, logs: LogsConfig, day: date, file: str) -> list[str]:
    """What is wrong with the values of a file, one line for each column and rule.

    Args:
        table: Columns of the contract with the contract's types; columns that are left out are not checked.
        logs: Feature lengths and labels.
        day: UTC day whose folder `file` lies in.
        file: Name of the file, for the lines.
    """
    columns = {name: table[name].combine_chunks() for name in table.column_names if name not in ("image", "text")}
    findings = [
        *_null_findings(table),
        *_scalar_findings(columns, day),
        *_feature_findings(columns, logs),
        *_history_findings(columns),
    ]
    return [finding.line(file) for finding in findings if len(finding.bad_rows)]


def _null_findings(table: pa.Table) -> Iterator[_Finding]:
    for name in table.column_names:
        if table[name].null_count:
            rows = pc.indices_nonzero(pc.is_null(table[name]))
            yield _Finding(name, rows, "null", "fill in the value or drop these rows")


def _scalar_findings(columns: dict[str, pa.Array], day: date) -> Iterator[_Finding]:
    for name in (*ID_COLUMNS, "position"):
        if name in columns:
            rows = _rows_where(pc.less(columns[name], 0))
            what = f"{_first(columns[name], rows)} is negative"
            yield _Finding(name, rows, what, "map it to 0 or more")
    if "ts" in columns:
        start = datetime.combine(day, time(), UTC)
        outside = pc.or_(pc.less(columns["ts"], start), pc.greater_equal(columns["ts"], start + timedelta(days=1)))
        rows = _rows_where(outside)
        what = f"{_first(columns['ts'], rows)} is not on {day} (UTC)"
        yield _Finding("ts", rows, what, "move these rows to the folder of their own day")
    if "propensity" in columns:
        inside = pc.and_(pc.greater(columns["propensity"], 0), pc.less_equal(columns["propensity"], 1))
        rows = _rows_where(pc.invert(inside))
        what = f"{_first(columns['propensity'], rows)} is not above 0 and at most 1"
        yield _Finding("propensity", rows, what, "log the probability, or leave the column out")


def _feature_findings(columns: dict[str, pa.Array], logs: LogsConfig) -> Iterator[_Finding]:
    lengths = {"user_features": logs.num_user_features, "pin_features": logs.num_pin_features}
    for name, length in lengths.items():
        if name in columns:
            found = pc.list_value_length(columns[name])
            rows = _rows_where(pc.not_equal(found, length))
            what = f"{_first(found, rows)} values where the recipe has {length}"
            yield _Finding(name, rows, what, f"write {length} values or set logs.num_{name}")
            finite = pc.fill_null(pc.is_finite(columns[name].flatten()), False)
            rows = _rows_of_elements(columns[name], pc.invert(finite))
            yield _Finding(name, rows, "a value is null, NaN or infinite", "write a finite number")


def _history_findings(columns: dict[str, pa.Array]) -> Iterator[_Finding]:
    if "history" in columns:
        pins = columns["history"].flatten()
        rows = _rows_of_elements(columns["history"], pc.fill_null(pc.less(pins, 0), True))
        yield _Finding("history", rows, "a pin id is null or negative", "drop that entry, with its action")
    if "history_actions" in columns:
        actions = columns["history_actions"].flatten()
        rows = _rows_of_elements(columns["history_actions"], pc.fill_null(pc.less(actions, 0), True))
        yield _Finding("history_actions", rows, "an action is null or negative", "drop that entry, with its pin")
    if "history" in columns and "history_actions" in columns:
        num_pins, num_actions = (pc.list_value_length(columns[name]) for name in ("history", "history_actions"))
        rows = _rows_where(pc.not_equal(num_pins, num_actions))
        what = f"{_first(num_actions, rows)} actions for {_first(num_pins, rows)} pins of history"
        yield _Finding("history_actions", rows, what, "write one action for each pin of history")


def _rows_where(bad: pa.Array) -> pa.Array:
    """Rows where `bad` is true; a null is another rule's finding."""
    return pc.indices_nonzero(pc.fill_null(bad, False))


def _rows_of_elements(lists: pa.Array, bad: pa.Array) -> pa.Array:
    """Rows of `lists` that hold an element where `bad`, one boolean an element, is true."""
    return pc.filter(pc.list_parent_indices(lists), bad)


def _first(values: pa.Array, rows: pa.Array) -> object:
    return values[rows[0].as_py()].as_py() if len(rows) else None
