"""Values of a source as the types that the contract asks for; what cannot be read becomes null and is told of.

A cast of Arrow's fails as a whole. These say which rows are at fault, so that each can be named, counted or dropped.

Shape legend: N rows of a chunk.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

Kind = Literal["number", "text", "truth", "time", "list", "bytes", "nothing", "record"]

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity|nan)$"
_TRUTHS = {"true": True, "t": True, "yes": True, "y": True, "1": True}
_FALSEHOODS = {"false": False, "f": False, "no": False, "n": False, "0": False}


class Cast(NamedTuple):
    """Values (N,), null where they could not be read, and bool (N,) where that is; None when all could."""

    values: pa.Array
    bad: pa.BooleanArray | None


def kind_of(type_: pa.DataType) -> Kind:
    """What a column of that type holds, in the words of the mapping."""
    kinds: list[tuple[Kind, Callable[[pa.DataType], bool]]] = [
        ("nothing", pa.types.is_null),
        ("truth", pa.types.is_boolean),
        ("number", lambda found: pa.types.is_integer(found) or pa.types.is_floating(found)),
        ("number", pa.types.is_decimal),
        ("text", lambda found: pa.types.is_string(found) or pa.types.is_large_string(found)),
        ("text", pa.types.is_string_view),
        ("time", lambda found: pa.types.is_timestamp(found) or pa.types.is_date(found)),
        ("list", lambda found: pa.types.is_list(found) or pa.types.is_large_list(found)),
        ("list", pa.types.is_fixed_size_list),
        ("bytes", lambda found: pa.types.is_binary(found) or pa.types.is_large_binary(found)),
    ]
    return next((kind for kind, is_it in kinds if is_it(type_)), "record")


def plain(values: pa.Array) -> pa.Array:
    """The same values in the plain type of their kind: dictionaries and large or viewed text undone."""
    if pa.types.is_dictionary(values.type):
        return plain(values.dictionary_decode())
    if kind_of(values.type) == "text" and not pa.types.is_string(values.type):
        return values.cast(pa.string())
    return values


def as_numbers(values: pa.Array) -> Cast:
    """Float64 (N,) of numbers, truths, or text that reads as a number."""
    if kind_of(values.type) != "text":
        return Cast(values.cast(pa.float64(), safe=False), None)
    try:
        return Cast(values.cast(pa.float64()), None)
    except pa.ArrowInvalid:  # seldom: then row by row
        trimmed = pc.utf8_trim_whitespace(values)
        return _cast_where(trimmed, pc.match_substring_regex(trimmed, _NUMBER), lambda text: text.cast(pa.float64()))


def as_truths(values: pa.Array) -> Cast:
    """Bool (N,) of truths, numbers (all but 0), or text such as ``true``, ``yes`` and ``1``, in any case."""
    kind = kind_of(values.type)
    if kind == "truth":
        return Cast(values, None)
    if kind != "text":
        numbers = values.cast(pa.float64(), safe=False)
        return Cast(pc.not_equal(numbers, 0.0), None)
    words = pc.utf8_lower(pc.utf8_trim_whitespace(values))
    known = {**_TRUTHS, **_FALSEHOODS}
    found = pc.index_in(words, pa.array(list(known)))
    truths = pa.array(list(known.values()), pa.bool_()).take(found)
    return _with_bad(truths, values)


def as_integers(values: pa.Array) -> Cast:
    """Int64 (N,) of integers, whole floats below 2**53, or text of digits."""
    kind = kind_of(values.type)
    if kind == "text":
        return _text_as_integers(values)
    if pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64())
        is_whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), float(2**53)))
        return _cast_where(numbers, is_whole, lambda whole: whole.cast(pa.int64()))
    if pa.types.is_uint64(values.type):
        return _cast_where(values, pc.less_equal(values, pa.scalar(2**63 - 1, pa.uint64())), _to_int64)
    return Cast(values.cast(pa.int64()), None)


def _text_as_integers(values: pa.Array) -> Cast:
    try:
        return Cast(values.cast(pa.int64()), None)
    except pa.ArrowInvalid:  # seldom: then row by row
        trimmed = pc.utf8_trim_whitespace(values)
        is_integer = pc.match_substring_regex(trimmed, r"^-?\d{1,18}$")
        # A 19th digit may be one too many; of equal lengths the order of texts is that of numbers.
        is_long = pc.and_(pc.match_substring_regex(trimmed, r"^\d{19}$"), pc.less_equal(trimmed, str(2**63 - 1)))
        return _cast_where(trimmed, pc.or_(is_integer, is_long), _to_int64)


def as_text(values: pa.Array) -> pa.Array:
    """String (N,): numbers as they are written, whole floats as integers, so that 7, 7.0 and ``7`` are one id."""
    if pa.types.is_floating(values.type):
        whole = as_integers(values)
        if whole.bad is None:
            return whole.values.cast(pa.string())
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def _to_int64(values: pa.Array) -> pa.Array:
    return values.cast(pa.int64())


def _cast_where(values: pa.Array, is_sound: pa.BooleanArray, cast: Callable[[pa.Array], pa.Array]) -> Cast:
    kept = pc.if_else(pc.fill_null(is_sound, False), values, pa.scalar(None, values.type))
    return _with_bad(cast(kept), values)


def _with_bad(found: pa.Array, values: pa.Array) -> Cast:
    """A null is bad where there was a value to read."""
    if found.null_count == values.null_count:
        return Cast(found, None)
    return Cast(found, pc.and_(pc.is_null(found), pc.is_valid(values)))
