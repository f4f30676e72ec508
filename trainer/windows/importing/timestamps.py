"""Points in time of a source as microseconds since 1970, UTC.

Zones are Arrow's, which know the changes of clocks up to 2037.

Shape legend: N rows of a chunk.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trainer.errors import InputError
from trainer.windows.importing.casting import as_integers, as_numbers, kind_of
from trainer.windows.importing.expressions import BadRows
from trainer.windows.importing.mapping import TimeConfig

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?)?(Z|[+-]\d{2}(:?\d{2})?)?$"
_OFFSET = r"[T ]\d{2}.*(Z|[+-]\d{2}(:?\d{2})?)$"
_NO_TEXT = pa.scalar(None, pa.string())
# Year 2100 read as milliseconds is 1970 in seconds: a wrong unit lies outside.
_EARLIEST_US, _LATEST_US = 631_152_000_000_000, 4_102_444_800_000_000  # 1990-01-01, 2100-01-01
_MICROS = pa.timestamp("us")


class Times(NamedTuple):
    """Microseconds since 1970, int64 (N,), null where they could not be told, and where that is."""

    ts_us: pa.Array
    bad: tuple[BadRows, ...]


def check_time(config: TimeConfig, place: str) -> None:
    """Tries zone and pattern, before a row is read.

    Raises:
        InputError: The zone is not known here, or the pattern cannot be read.
    """
    try:
        pc.assume_timezone(pa.array([0], _MICROS), config.time_zone)
    except pa.ArrowInvalid:
        raise InputError(
            f"{place}.time_zone: '{config.time_zone}' is not in this machine's time zone database; write a name such "
            "as Europe/Berlin"
        ) from None
    if "%" in config.format:
        try:
            pc.strptime(pa.array(["x"]), format=config.format.removesuffix(".%f"), unit="us", error_is_null=True)
        except pa.ArrowInvalid as error:
            raise InputError(f"{place}.format: '{config.format}' is no pattern ({error}); mend it") from None


def to_utc(values: pa.Array, config: TimeConfig) -> Times:
    """Microseconds since 1970 of `values` (N,), as `config` says they are to be read.

    A time outside 1990 to 2099 is bad: it tells of a wrong unit.
    """
    kind = kind_of(values.type)
    if kind == "time":
        found, what = _of_times(values, config), "is no time"
    elif config.format in _PER_SECOND and kind in ("number", "text", "nothing"):
        found, what = _of_counts(values, config.format), f"is no number of {config.format} since 1970"
    elif config.format == "iso" and kind in ("text", "nothing"):
        found, what = _of_iso(values.cast(pa.string()), config), "is no ISO time"
    elif "%" in config.format and kind in ("text", "number", "nothing"):
        found, what = _of_pattern(values.cast(pa.string()), config), f"does not read as '{config.format}'"
    else:
        found, what = pa.nulls(len(values), pa.int64()), f"is a {kind}, which format: {config.format} does not read"
        what += " (s, ms, us and ns read what counts from 1970)" if kind == "number" else ""
    if config.dst == "bad_row" and config.time_zone != "UTC":
        what += f", or is skipped or told twice in {config.time_zone}"
    is_unread = pc.and_(pc.is_null(found), pc.is_valid(values))
    is_far = pc.or_(pc.less(found, _EARLIEST_US), pc.greater_equal(found, _LATEST_US))
    return Times(
        ts_us=pc.if_else(pc.fill_null(is_far, False), pa.scalar(None, pa.int64()), found),
        bad=(
            BadRows(rows=is_unread, what=what),
            BadRows(rows=pc.fill_null(is_far, False), what=f"is outside 1990 to 2099 when read as '{config.format}'"),
        ),
    )


def _of_times(values: pa.Array, config: TimeConfig) -> pa.Array:
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        return values.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())
    return _from_zone(values.cast(_MICROS, safe=False), config)


def _of_counts(values: pa.Array, unit: str) -> pa.Array:
    """Integers exactly; fractions of a second as near as float64 tells them."""
    integers = as_integers(values)
    if integers.bad is None:
        return _scaled(integers.values, unit)
    numbers = as_numbers(values).values
    in_us = pc.round(pc.multiply(numbers, 1_000_000 / _PER_SECOND[unit]))
    is_sound = pc.less(pc.abs(in_us), float(_LATEST_US) * 2)
    return pc.if_else(pc.fill_null(is_sound, False), in_us, pa.scalar(None, pa.float64())).cast(pa.int64())


def _scaled(counts: pa.Array, unit: str) -> pa.Array:
    factor = 1_000_000 // _PER_SECOND[unit]
    if not factor:
        return pc.divide(counts, _PER_SECOND[unit] // 1_000_000)
    # What would not fit lies far outside; anything out of range says so.
    limit = _LATEST_US // factor
    clipped = pc.min_element_wise(pc.max_element_wise(counts, -limit, skip_nulls=False), limit, skip_nulls=False)
    return pc.multiply(clipped, factor)


def _of_iso(text: pa.Array, config: TimeConfig) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(text)
    local, zoned = _read(trimmed, pa.timestamp("ns")), None
    if local is None:
        zoned = _read(trimmed, pa.timestamp("ns", tz="UTC"))
    if local is None and zoned is None:
        kept = pc.if_else(pc.match_substring_regex(trimmed, _ISO), trimmed, _NO_TEXT)
        # Nanoseconds are all that Arrow reads.
        kept = pc.replace_substring_regex(kept, r"(\.\d{9})\d+", r"\1")
        has_offset = pc.match_substring_regex(kept, _OFFSET)
        local = _read_what_reads(pc.if_else(has_offset, _NO_TEXT, kept), pa.timestamp("ns"))
        zoned = _read_what_reads(pc.if_else(has_offset, kept, _NO_TEXT), pa.timestamp("ns", tz="UTC"))
    found = [] if local is None else [_from_zone(local.cast(_MICROS, safe=False), config)]
    found += [] if zoned is None else [zoned.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())]
    return pc.coalesce(*found)


def _read(text: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def _read_what_reads(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Null where a value does not read: Arrow refuses a whole column for it, so the column is halved around it."""
    found = _read(text, kind)
    if found is not None:
        return found
    if len(text) == 1:
        return pa.nulls(1, kind)
    half = len(text) // 2
    return pa.concat_arrays([_read_what_reads(part, kind) for part in (text[:half], text[half:])])


def _micros_of(digits: pa.Array) -> pa.Array:
    """``25`` of a second is 250,000 microseconds."""
    return pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, padding="0"), 0, 6).cast(pa.int64())


def _of_pattern(text: pa.Array, config: TimeConfig) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(text)
    fraction_us: pa.Array | int = 0
    if config.format.endswith(".%f"):
        parts = pc.extract_regex(trimmed, r"^(?P<rest>.*)\.(?P<digits>\d{1,9})$")
        trimmed = pc.struct_field(parts, "rest")
        fraction_us = _micros_of(pc.struct_field(parts, "digits"))
    found = pc.strptime(trimmed, format=config.format.removesuffix(".%f"), unit="us", error_is_null=True)
    found_us = pc.add(found.cast(pa.int64()), fraction_us)
    if found.type.tz is not None:
        return found_us
    return _from_zone(found_us.cast(_MICROS), config)


def _from_zone(local: pa.Array, config: TimeConfig) -> pa.Array:
    """Microseconds since 1970 of local times; the rule for a change of clocks is the config's."""
    if config.time_zone == "UTC":
        return local.cast(pa.int64())
    first = pc.assume_timezone(local, config.time_zone, ambiguous="earliest", nonexistent="latest")
    if config.dst == "shift":
        return first.cast(pa.int64())
    # What is told twice has two readings, what is skipped has one on either side of the gap.
    other = pc.assume_timezone(local, config.time_zone, ambiguous="latest", nonexistent="earliest")
    is_one = pc.equal(first, other)
    return pc.if_else(is_one, first.cast(pa.int64()), pa.scalar(None, pa.int64()))
