"""Records of a source as impressions and engagements: all that can be told of one without knowing any other.

Shape legend: N rows of a chunk.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.windows.importing.expressions import Expression
from trainer.windows.importing.fields import Fields
from trainer.windows.importing.mapping import EngagementsConfig, Mapping
from trainer.windows.importing.past import histories_of
from trainer.windows.importing.records import Chunk
from trainer.windows.importing.tally import Fault, Tally
from trainer.windows.importing.timestamps import check_time

Ints = NDArray[np.int64]

ORDER = "order"
"""Column that the rows of a slate are ranked by, once a day is whole."""

_MINUTE_US = 60_000_000


class _Parser:
    """Parses a mapping's expressions and keeps them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.expressions: list[Expression] = []

    def one(self, key: str, text: str) -> Expression:
        self.expressions.append(Expression(text, f"{self._file}: {key}"))
        return self.expressions[-1]

    def maybe(self, key: str, text: str | None) -> Expression | None:
        return None if text is None else self.one(key, text)


class Impressions:
    """Makes rows of the contract of records, but for what only the whole log tells: histories, ranks, joined labels.

    Args:
        mapping: What the records mean.
        file: The mapping's, for what is said.

    Attributes:
        expressions: All that it computes.

    Raises:
        InputError: An expression, a zone or a pattern does not read.
    """

    def __init__(self, mapping: Mapping, file: str) -> None:
        self._mapping = mapping
        parser = _Parser(file)
        self._where = parser.maybe("source.where", mapping.source.where)
        slate = mapping.request_id
        self._request = parser.maybe("request_id", slate.value)
        self._hashed = tuple(parser.one(f"request_id.hash.{index}", text) for index, text in enumerate(slate.hash))
        self._user = parser.one("user_id", mapping.user_id.value)
        self._pin = parser.one("pin_id", mapping.pin_id.value)
        self._ts = parser.one("ts", mapping.ts.value)
        check_time(mapping.ts, f"{file}: ts")
        self._position = parser.maybe("position", mapping.position.value)
        self._order_by = parser.maybe("position.order_by", mapping.position.order_by)
        self._labels = {label: parser.one(f"labels.{label}", text) for label, text in mapping.labels.items()}
        self._features = {
            name: tuple((parser.one(f"{name}.{index}", each.value), each) for index, each in enumerate(features))
            for name, features in (("user_features", mapping.user_features), ("pin_features", mapping.pin_features))
        }
        self._extras = {name: parser.one(name, getattr(mapping, name)) for name in mapping.extras}
        past = mapping.history.from_column
        self._past = parser.maybe("history.from_column.value", past.value if past else None)
        self._past_actions = parser.maybe("history.from_column.actions", past.actions if past else None)
        self.expressions = parser.expressions

    def of(self, chunk: Chunk, tally: Tally) -> pa.Table:
        """The chunk's sound impressions; the others go to `tally`.

        Raises:
            InputError: Kinds of columns do not go together, or every row breaks one rule and bad rows are refused.
        """
        chosen = _chosen(chunk, self._where)
        fields = Fields(chosen.columns, chosen.num_rows, chosen.faults)
        columns = self._columns(fields)
        is_sound = tally.take(fields.faults, chosen.num_rows, lambda row: chunk.place(int(chosen.number[row])))
        table = pa.table(columns)
        return table if is_sound.all() else table.filter(pa.array(is_sound))

    def _columns(self, fields: Fields) -> dict[str, object]:
        mapping = self._mapping
        user = fields.id("user_id", self._user, mapping.user_id.kind)
        ts = fields.time("ts", self._ts, mapping.ts)
        columns: dict[str, object] = {
            "request_id": self._slates(fields, ts),
            "user_id": user,
            "pin_id": fields.id("pin_id", self._pin, mapping.pin_id.kind),
            "ts": ts,
        }
        if self._position is not None:
            columns["position"] = fields.position("position", self._position, mapping.position.first)
        elif self._order_by is not None:
            columns[ORDER] = fields.order("position.order_by", self._order_by)
        columns |= {label: fields.label(f"labels.{label}", found) for label, found in self._labels.items()}
        columns |= {name: fields.numbers(name, features) for name, features in self._features.items()}
        if self._past is not None:
            past = mapping.history.from_column
            assert past is not None
            columns["history"], columns["history_actions"] = histories_of(
                fields, past, self._past, self._past_actions, mapping.pin_id.kind, mapping.history.length
            )
        read = {"propensity": fields.probability, "text": fields.text, "image": fields.image}
        columns |= {name: read[name](name, found) for name, found in self._extras.items()}
        return columns

    def _slates(self, fields: Fields, ts_us: Ints) -> Ints:
        slate = self._mapping.request_id
        if self._request is not None:
            return fields.id("request_id", self._request, slate.kind)
        minutes = slate.within_minutes
        bucket = None if minutes is None else ts_us // int(minutes * _MINUTE_US)
        return fields.hashed("request_id.hash", self._hashed, bucket)


class Engagements:
    """Makes engagements of records.

    Args:
        config: What the records mean.
        file: The mapping's, for what is said.

    Attributes:
        expressions: All that it computes.

    Raises:
        InputError: An expression, a zone or a pattern does not read.
    """

    def __init__(self, config: EngagementsConfig, file: str) -> None:
        self._config = config
        parser = _Parser(f"{file}: engagements")
        self._where = parser.maybe("where", config.where)
        self._ids = {
            name: (parser.one(name, each.value), each.kind)
            for name in ("request_id", "user_id", "pin_id")
            if (each := getattr(config, name)) is not None
        }
        self._ts = parser.one("ts", config.ts.value)
        check_time(config.ts, f"{file}: engagements.ts")
        self._labels = {label: parser.one(f"labels.{label}", text) for label, text in config.labels.items()}
        self.expressions = parser.expressions

    @property
    def key(self) -> tuple[str, str]:
        """What an engagement and its impression share."""
        return ("request_id" if "request_id" in self._ids else "user_id", "pin_id")

    def of(self, chunk: Chunk, tally: Tally) -> pa.Table:
        """The chunk's sound engagements that carry a label; bad ones go to `tally`; raises as `Impressions.of` does.

        Returns:
            ``user_id``, ``pin_id``, ``ts`` and ``bits``, one a label; ``request_id`` where it is mapped.
        """
        chosen = _chosen(chunk, self._where)
        fields = Fields(chosen.columns, chosen.num_rows, chosen.faults)
        bits = np.zeros(chosen.num_rows, np.int64)
        for bit, (label, found) in enumerate(self._labels.items()):
            bits |= fields.label(f"labels.{label}", found).astype(np.int64) << bit
        columns: dict[str, object] = {name: fields.id(name, *parts) for name, parts in self._ids.items()}
        columns |= {"ts": fields.time("ts", self._ts, self._config.ts), "bits": bits}
        faults = [fault._replace(key=f"engagements.{fault.key}") for fault in fields.faults]
        is_sound = tally.take(faults, chosen.num_rows, lambda row: chunk.place(int(chosen.number[row])))
        return pa.table(columns).filter(pa.array(is_sound & (bits != 0)))


class _Chosen(NamedTuple):
    """The records of a chunk that count: their columns, how many, and the number of each within the chunk."""

    columns: dict[str, pa.Array]
    num_rows: int
    number: Ints
    faults: list[Fault]


def _chosen(chunk: Chunk, where: Expression | None) -> _Chosen:
    if where is None:
        return _Chosen(chunk.columns, chunk.num_rows, np.arange(chunk.num_rows), [])
    fields = Fields(chunk.columns, chunk.num_rows)
    is_chosen = fields.label("where", where)
    # A record that nobody can tell about is no record of another kind: it is counted with those that count.
    for fault in fields.faults:
        is_chosen |= np.asarray(pa.array(fault.rows).fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    number = np.flatnonzero(is_chosen)
    mask = pa.array(is_chosen)
    columns = {name: values.filter(mask) for name, values in chunk.columns.items()}
    faults = [fault._replace(rows=pa.array(fault.rows).filter(mask), values=None) for fault in fields.faults]
    return _Chosen(columns, len(number), number, faults)
