"""Expressions' values as fields of the contract, and what of them breaks it.

Shape legend: N rows of a chunk, F features.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trainer.windows.hashing import hash_ids
from trainer.windows.importing.casting import as_integers, as_numbers, as_text, as_truths, kind_of
from trainer.windows.importing.expressions import Expression
from trainer.windows.importing.mapping import NumberConfig, TimeConfig
from trainer.windows.importing.tally import Fault
from trainer.windows.importing.timestamps import to_utc

Ints = NDArray[np.int64]

MAX_POSITION = 2**15 - 1
_SEPARATOR = "\x1f"  # no id holds it


@dataclass(frozen=True)
class Fields:
    """Computes fields of one chunk; null fields and what else is wrong go to `faults`.

    Args:
        columns: The chunk's, (N,) each.
        num_rows: N.
    """

    columns: dict[str, pa.Array]
    num_rows: int
    faults: list[Fault] = field(default_factory=list)

    def fault(self, key: str, rows: NDArray[np.bool_], what: str) -> None:
        """Takes note of rows (N,) that break the mapping."""
        self.faults.append(Fault(key, rows, what))

    def raw(self, key: str, expression: Expression) -> pa.Array:
        """The value as the source has it."""
        found = expression.on(self.columns, self.num_rows)
        self.faults.extend(Fault(key, bad.rows, bad.what) for bad in found.bad)
        return found.values

    def id(self, key: str, expression: Expression, kind: Literal["integer", "text"]) -> Ints:
        """Int64 (N,), not negative."""
        values = self._plain(key, self._known(key, self.raw(key, expression)), "an id")
        if kind == "text":
            return _int64(hash_ids(as_text(values)))
        remedy = "is no integer of 0 or more (kind: text takes any id)"
        done = as_integers(values)
        if done.bad is not None:
            self.faults.append(Fault(key, done.bad, remedy, values))
        self.faults.append(Fault(key, pc.less(done.values, 0), remedy, values))
        return _int64(done.values)

    def hashed(self, key: str, expressions: tuple[Expression, ...], bucket: Ints | None) -> Ints:
        """An id of what rows have in common, int64 (N,)."""
        found = [self._known(key, self.raw(key, expression)) for expression in expressions]
        parts = [as_text(self._plain(key, values, "an id")) for values in found]
        if bucket is not None:
            parts.append(pa.array(bucket).cast(pa.string()))
        return _int64(hash_ids(pc.binary_join_element_wise(*parts, _SEPARATOR)))

    def time(self, key: str, expression: Expression, config: TimeConfig) -> Ints:
        """Microseconds since 1970, UTC, int64 (N,)."""
        values = self._known(key, self.raw(key, expression))
        found = to_utc(values, config)
        self.faults.extend(Fault(key, bad.rows, bad.what, values) for bad in found.bad)
        return _int64(found.ts_us)

    def label(self, key: str, expression: Expression) -> NDArray[np.bool_]:
        """Bool (N,); what is unknown is false."""
        values = self._plain(key, self.raw(key, expression), "true or false")
        done = as_truths(values)
        if done.bad is not None:
            self.faults.append(Fault(key, done.bad, "is not true or false; compare it with something", values))
        return np.asarray(pc.fill_null(done.values, False).to_numpy(zero_copy_only=False), np.bool_)

    def position(self, key: str, expression: Expression, first: int) -> Ints:
        """Counted from 0, int64 (N,)."""
        values = self._plain(key, self._known(key, self.raw(key, expression)), "a position")
        done = as_integers(values)
        position = pc.subtract(done.values, first)
        outside = pc.or_(pc.less(position, 0), pc.greater(position, MAX_POSITION))
        what = f"is no integer of {first} to {first + MAX_POSITION}"
        bad = outside if done.bad is None else pc.or_(pc.fill_null(outside, False), done.bad)
        self.faults.append(Fault(key, bad, what, values))
        return _int64(position)

    def order(self, key: str, expression: Expression) -> NDArray[np.float64]:
        """What slates are ordered by, float64 (N,)."""
        values = self._known(key, self.raw(key, expression))
        if kind_of(values.type) == "time":
            values = values.cast(pa.timestamp("us")).cast(pa.int64())
        done = as_numbers(self._plain(key, values, "a number"))
        if done.bad is not None:
            self.faults.append(Fault(key, done.bad, "is no number", values))
        return np.asarray(pc.fill_null(done.values, 0.0).to_numpy(zero_copy_only=False), np.float64)

    def numbers(self, key: str, features: tuple[tuple[Expression, NumberConfig], ...]) -> pa.ListArray:
        """Features, list<float32> (N,) of length F each."""
        parts = []
        for index, (expression, config) in enumerate(features):
            place = f"{key}.{index}"
            values = self.raw(place, expression)
            read = self._list_of_numbers if config.length is not None else self._column_of_numbers
            parts.append(read(place, values, config))
        values_NF = np.concatenate(parts, axis=1)
        offsets = np.arange(0, values_NF.size + 1, values_NF.shape[1], dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values_NF.reshape(-1)))

    def probability(self, key: str, expression: Expression) -> pa.Array:
        """Float32 (N,) in (0, 1]."""
        values = self._plain(key, self._known(key, self.raw(key, expression)), "a number")
        done = as_numbers(values)
        inside = pc.and_(pc.greater(done.values, 0), pc.less_equal(done.values, 1))
        self.faults.append(
            Fault(
                key,
                pc.and_(pc.invert(pc.fill_null(inside, False)), pc.is_valid(values)),
                "is no number above 0 and at most 1",
                values,
            )
        )
        return pc.fill_null(done.values, 0.0).cast(pa.float32())

    def text(self, key: str, expression: Expression) -> pa.Array:
        """String (N,); no text is an empty one."""
        return pc.fill_null(as_text(self._plain(key, self.raw(key, expression), "text")), "")

    def image(self, key: str, expression: Expression) -> pa.Array:
        """Binary (N,)."""
        values = self._known(key, self.raw(key, expression))
        if kind_of(values.type) not in ("bytes", "nothing"):
            self._none(key, f"is a {kind_of(values.type)}; a picture is a column of bytes, which Parquet has")
            return pa.array([b""] * self.num_rows)
        return pc.fill_null(values.cast(pa.binary()), b"")

    def _column_of_numbers(self, key: str, values: pa.Array, config: NumberConfig) -> NDArray[np.float32]:
        hint = " (length: N takes a list of N)" if kind_of(values.type) == "list" else ""
        values = self._plain(key, values, f"a number{hint}")
        done = as_numbers(values)
        if done.bad is not None:
            self.faults.append(Fault(key, done.bad, "is no number", values))
        unread = done.bad if done.bad is not None else np.zeros(self.num_rows, np.bool_)
        return self._finite(key, done.values, config, values, unread)[:, None]

    def _list_of_numbers(self, key: str, values: pa.Array, config: NumberConfig) -> NDArray[np.float32]:
        assert config.length is not None
        empty = np.zeros((self.num_rows, config.length), np.float32)
        if kind_of(values.type) == "nothing":
            values = values.cast(pa.list_(pa.float64()))
        if kind_of(values.type) != "list" or kind_of(values.type.value_type) not in ("number", "truth", "nothing"):
            self._none(key, f"is a {kind_of(values.type)}, no list of numbers")
            return empty
        known = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        fits = np.asarray(pc.fill_null(pc.list_value_length(values), -1).to_numpy(), np.int64) == config.length
        self.faults.append(Fault(key, known & ~fits, f"is no list of {config.length}", values))
        if config.fill is None:
            self.faults.append(Fault(key, ~known, "is null (fill: gives it a value)"))
        flat = as_numbers(pc.list_flatten(values.filter(pa.array(fits)))).values
        numbers = _floats(flat, config.fill)
        rows = empty if config.fill is None else np.full_like(empty, config.fill)
        rows[fits] = numbers.reshape(-1, config.length)
        self.faults.append(Fault(key, ~np.isfinite(rows).all(axis=1), "holds what is no finite number", values))
        return np.nan_to_num(rows)

    def _finite(
        self, key: str, numbers: pa.Array, config: NumberConfig, values: pa.Array, unread: pa.Array | NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        filled = _floats(numbers, config.fill)
        is_null = np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)
        wrong = ~np.isfinite(filled) & ~np.asarray(unread)
        self.faults.append(Fault(key, wrong & is_null, "is null (fill: gives it a value)"))
        self.faults.append(Fault(key, wrong & ~is_null, "is no finite number of 32 bits", values))
        return np.nan_to_num(filled)

    def _known(self, key: str, values: pa.Array) -> pa.Array:
        if values.null_count:
            self.faults.append(Fault(key, values.is_null(), "is null"))
        return values

    def _plain(self, key: str, values: pa.Array, wanted: str) -> pa.Array:
        """The values, unless they are of a kind that nothing single can be read from: then all rows are at fault."""
        if kind_of(values.type) in ("number", "text", "truth", "nothing"):
            return values
        self._none(key, f"is a {kind_of(values.type)}, not {wanted}")
        return pa.nulls(self.num_rows)

    def _none(self, key: str, what: str) -> None:
        """All rows are at fault."""
        self.fault(key, np.ones(self.num_rows, np.bool_), what)


def _floats(numbers: pa.Array, fill: float | None) -> NDArray[np.float32]:
    """Float32; null, or NaN where there is a fill, is that fill, else NaN."""
    values = np.asarray(pc.fill_null(numbers.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False), np.float64)
    if fill is not None:
        values = np.where(np.isnan(values), fill, values)
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _int64(values: pa.Array) -> Ints:
    """Without nulls: rows that have one are at fault already, and go."""
    return np.asarray(pc.fill_null(values.cast(pa.int64()), 0).to_numpy(), np.int64)
