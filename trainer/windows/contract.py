"""The log contract: one row is one impression, a pin shown to a user in a slate.

A log lies in ``<logs.uri>/dt=YYYY-MM-DD/*.parquet``, one folder a UTC day. Everything in a row was known at ``ts``;
labels came after. This module is the contract's only definition: `arrow_schema` says what a log looks like,
`type_problems` and `find_breaches` hold one against it. Each problem is one line: the file, the column, the row
(counted from 0), the remedy.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trainer.recipe import LogsConfig
from trainer.windows.arrays import one_array

ID_COLUMNS = ("request_id", "user_id", "pin_id")
FEATURE_COLUMNS = ("user_features", "pin_features")
WEIGHT = "weight"
"""Column of a prepared day whose negatives were sampled, float32: how many rows of the log a row stands for."""

_ID_DOMAINS = (("request_id",), ("user_id",), ("pin_id", "history"))
"""Columns that speak of the same ids."""
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

    Encodings of one type pass (large and fixed-size lists, large, viewed and dictionary strings), and so do ids that
    are text, which preparation hashes (`trainer.windows.hashing`); columns that the contract does not know are ignored.

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
        elif not _is_encoding_of(found.field(field.name).type, field):
            kind = _words(found.field(field.name).type)
            problems[field.name] = f"{file}: column '{field.name}' is {kind}; cast it to {_words(field.type)}"
    return problems


def id_problems(schemas: Mapping[str, pa.Schema]) -> list[tuple[str, str]]:
    """Files that disagree on whether an id is text or a number: hashed, the two would never meet.

    Args:
        schemas: Of the files of one day, by name; of sound types.

    Returns:
        File and line of each problem.
    """
    problems = []
    for domain in _ID_DOMAINS:
        columns = [(file, name, schema) for file, schema in schemas.items() for name in domain if name in schema.names]
        first = columns[:1]
        for file, name, schema in columns[1:]:
            first_file, first_name, first_schema = first[0]
            if is_text(schema.field(name).type) != is_text(first_schema.field(first_name).type):
                kind, other = _words(schema.field(name).type), _words(first_schema.field(first_name).type)
                line = f"{file}: column '{name}' is {kind} where '{first_name}' of {first_file} is {other}; "
                problems.append((file, line + "write all of them as text or all as int64"))
    return problems


def is_text(kind: pa.DataType) -> bool:
    """Whether ids of a type, or lists of them, are text."""
    return _plain(kind) in (pa.string(), pa.list_(pa.string()))


def _is_encoding_of(kind: pa.DataType, field: pa.Field) -> bool:
    is_id = any(field.name in domain for domain in _ID_DOMAINS)
    return bool(_plain(kind) == field.type) or (is_id and is_text(kind) and _is_list(kind) == _is_list(field.type))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(_plain(kind)))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that the contract names for what `kind` encodes."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
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


class Breach(NamedTuple):
    """Rows of one column that break one rule.

    Attributes:
        column: The column.
        rule: What it breaks, in a word or two.
        bad_rows: Integer array, ascending, a row as often as it breaks the rule; most often empty.
        what: What is wrong with the first of them.
        remedy: What to do about them.
    """

    column: str
    rule: str
    bad_rows: pa.Array
    what: str
    remedy: str


def breach_line(file: str, breach: Breach, first_row: int, num_rows: int) -> str:
    """What a person is told of a breach: the first row of a file with it, and how many there are."""
    more = f" and {num_rows - 1} more" if num_rows > 1 else ""
    return f"{file}: column '{breach.column}', row {first_row}{more}: {breach.what}; {breach.remedy}"


def value_problems(table: pa.Table, logs: LogsConfig, day: date, file: str) -> list[str]:
    """What is wrong with the values of a table, one line for each column and rule; see `find_breaches`.

    Args:
        table: See `find_breaches`.
        logs: See `find_breaches`.
        day: See `find_breaches`.
        file: Name of the file, for the lines.
    """
    lines = []
    for breach in find_breaches(table, logs, day):
        rows = breach.bad_rows.unique()
        if len(rows):
            lines.append(breach_line(file, breach, rows[0].as_py(), len(rows)))
    return lines


def find_breaches(table: pa.Table, logs: LogsConfig, day: date, late_hours: int = 0) -> list[Breach]:
    """Holds values against the contract.

    Args:
        table: Columns of the contract with the contract's types; columns that are left out are not checked.
        logs: Feature lengths and labels.
        day: UTC day that the rows belong to.
        late_hours: How far before it a row may lie and be told as late rather than as of another day.

    Returns:
        One for each column and rule, the same ones in the same order for every table of these columns, without rows
        where nothing is wrong.
    """
    columns = {name: one_array(table[name]) for name in table.column_names if name not in ("image", "text")}
    return [
        *_null_breaches(table),
        *_scalar_breaches(columns, day, late_hours),
        *_feature_breaches(columns, logs),
        *_history_breaches(columns),
    ]


def _null_breaches(table: pa.Table) -> Iterator[Breach]:
    for name in table.column_names:
        column = table[name]
        rows = pc.indices_nonzero(pc.is_null(column)) if column.null_count else pa.array([], pa.uint64())
        yield Breach(name, "null", rows, "null", "fill in the value or drop these rows")


def _scalar_breaches(columns: dict[str, pa.Array], day: date, late_hours: int) -> Iterator[Breach]:
    for name in (*ID_COLUMNS, "position"):
        if name in columns:
            rows = _rows_where(pc.less(columns[name], 0))
            what = f"{_first(columns[name], rows)} is negative"
            yield Breach(name, "negative", rows, what, "map it to 0 or more")
    if "ts" in columns:
        yield from _time_breaches(columns["ts"], day, late_hours)
    if "propensity" in columns:
        inside = pc.and_(pc.greater(columns["propensity"], 0), pc.less_equal(columns["propensity"], 1))
        rows = _rows_where(pc.invert(inside))
        what = f"{_first(columns['propensity'], rows)} is not above 0 and at most 1"
        yield Breach("propensity", "no probability", rows, what, "log the probability, or leave the column out")


def _time_breaches(ts: pa.Array, day: date, late_hours: int) -> Iterator[Breach]:
    start = datetime.combine(day, time(), UTC)
    is_early = pc.less(ts, start)
    is_outside = pc.greater_equal(ts, start + timedelta(days=1))
    if late_hours:
        rows = _rows_where(is_early)
        what = f"{_first(ts, rows)} is over {late_hours} h before {day} (UTC)"
        remedy = "deliver these rows sooner, raise window.late_hours or drop them"
        yield Breach("ts", "too late", rows, what, remedy)
    else:
        is_outside = pc.or_(is_early, is_outside)
    rows = _rows_where(is_outside)
    what = f"{_first(ts, rows)} is not on {day} (UTC)"
    yield Breach("ts", "another day", rows, what, "move these rows to the folder of their own day")


def _feature_breaches(columns: dict[str, pa.Array], logs: LogsConfig) -> Iterator[Breach]:
    lengths = {"user_features": logs.num_user_features, "pin_features": logs.num_pin_features}
    for name, length in lengths.items():
        if name in columns:
            found = pc.list_value_length(columns[name])
            rows = _rows_where(pc.not_equal(found, length))
            what = f"{_first(found, rows)} values where the recipe has {length}"
            yield Breach(name, "length", rows, what, f"write {length} values or set logs.num_{name}")
            finite = pc.fill_null(pc.is_finite(columns[name].flatten()), False)
            rows = _rows_of_elements(columns[name], pc.invert(finite))
            yield Breach(name, "not finite", rows, "a value is null, NaN or infinite", "write a finite number")


def _history_breaches(columns: dict[str, pa.Array]) -> Iterator[Breach]:
    if "history" in columns:
        rows = _rows_of_elements(columns["history"], _is_no_number(columns["history"].flatten()))
        what = "a pin id is null or negative"
        yield Breach("history", "null or negative", rows, what, "drop that entry, with its action")
    if "history_actions" in columns:
        rows = _rows_of_elements(columns["history_actions"], _is_no_number(columns["history_actions"].flatten()))
        what = "an action is null or negative"
        yield Breach("history_actions", "null or negative", rows, what, "drop that entry, with its pin")
    if "history" in columns and "history_actions" in columns:
        num_pins, num_actions = (pc.list_value_length(columns[name]) for name in ("history", "history_actions"))
        rows = _rows_where(pc.not_equal(num_pins, num_actions))
        what = f"{_first(num_actions, rows)} actions for {_first(num_pins, rows)} pins of history"
        yield Breach("history_actions", "length", rows, what, "write one action for each pin of history")


def _is_no_number(elements: pa.Array) -> pa.Array:
    return pc.fill_null(pc.less(elements, 0), True)


def _rows_where(bad: pa.Array) -> pa.Array:
    """Rows where `bad` is true; a null is another rule's finding."""
    return pc.indices_nonzero(pc.fill_null(bad, False))


def _rows_of_elements(lists: pa.Array, bad: pa.Array) -> pa.Array:
    """Rows of `lists` that hold an element where `bad`, one boolean an element, is true."""
    if not bad.true_count:  # as a rule; the rows of all elements are many
        return pa.array([], pa.int64())
    return pc.filter(pc.list_parent_indices(lists), bad)


def _first(values: pa.Array, rows: pa.Array) -> object:
    return values[rows[0].as_py()].as_py() if len(rows) else None
