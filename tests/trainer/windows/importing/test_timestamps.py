from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.errors import InputError
from trainer.windows.importing.mapping import TimeConfig
from trainer.windows.importing.timestamps import Times, check_time, to_utc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def read(values: list[object], **settings: Any) -> Times:
    return to_utc(pa.array(values), TimeConfig(value="t", **settings))


def moments(values: list[object], **settings: Any) -> list[datetime | None]:
    found = read(values, **settings).ts_us.to_pylist()
    return [None if ts_us is None else EPOCH + timedelta(microseconds=ts_us) for ts_us in found]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2024-03-05", utc(2024, 3, 5)),
        ("2024-03-05 10", utc(2024, 3, 5, 10)),
        ("2024-03-05T10:11", utc(2024, 3, 5, 10, 11)),
        (" 2024-03-05 10:11:12 ", utc(2024, 3, 5, 10, 11, 12)),
        ("2024-03-05T10:11:12.5", utc(2024, 3, 5, 10, 11, 12, 500_000)),
        ("2024-03-05T10:11:12.123456789012", utc(2024, 3, 5, 10, 11, 12, 123_456)),
        ("2024-03-05T10:11:12Z", utc(2024, 3, 5, 10, 11, 12)),
        ("2024-03-05T10:11:12+02:00", utc(2024, 3, 5, 8, 11, 12)),
        ("2024-03-05T10:11:12-0530", utc(2024, 3, 5, 15, 41, 12)),
        ("2024-03-05T10:11:12+01", utc(2024, 3, 5, 9, 11, 12)),
        ("2024-02-30", None),
        ("2024-13-01", None),
        ("2024-03-05T25:00:00", None),
        ("yesterday", None),
        ("20240305", None),
    ],
)
def test_iso_texts(text: str, wanted: datetime | None) -> None:
    others = ["2024-01-01T00:00:00Z", "2024-01-01", None, "nonsense"]
    alone = moments([text])
    assert alone == [wanted]
    assert moments([text, *others])[0] == wanted, "whatever else is in the column"


def test_mixed_texts_are_read_each_in_its_own_way() -> None:
    found = moments(["2024-07-01 12:00:00", "2024-07-01T12:00:00Z", "2024-07-01T12:00:00+09:00"], time_zone=BERLIN)
    assert found == [utc(2024, 7, 1, 10), utc(2024, 7, 1, 12), utc(2024, 7, 1, 3)]


@pytest.mark.parametrize(
    ("values", "unit", "wanted"),
    [
        ([1_700_000_000, None], "s", utc(2023, 11, 14, 22, 13, 20)),
        (["1700000000"], "s", utc(2023, 11, 14, 22, 13, 20)),
        ([1_700_000_000.25], "s", utc(2023, 11, 14, 22, 13, 20, 250_000)),
        (["1700000000.25"], "s", utc(2023, 11, 14, 22, 13, 20, 250_000)),
        ([1_700_000_000_123], "ms", utc(2023, 11, 14, 22, 13, 20, 123_000)),
        ([1_700_000_000_123_456], "us", utc(2023, 11, 14, 22, 13, 20, 123_456)),
        ([1_700_000_000_123_456_789], "ns", utc(2023, 11, 14, 22, 13, 20, 123_456)),
    ],
)
def test_counts_since_1970(values: list[object], unit: str, wanted: datetime) -> None:
    assert moments(values, format=unit)[0] == wanted


@pytest.mark.parametrize(
    ("value", "unit"), [(1_700_000_000_123, "s"), (1_700_000_000, "ms"), (2**62, "s"), (1e300, "s")]
)
def test_a_wrong_unit_is_told(value: object, unit: str) -> None:
    found = read([value], format=unit)
    assert found.ts_us.to_pylist() == [None]
    assert any(bad.rows.to_pylist() == [True] for bad in found.bad)


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        ("%d/%m/%Y %H:%M", "05/03/2024 10:11", utc(2024, 3, 5, 10, 11)),
        ("%d.%m.%Y %H:%M:%S.%f", "05.03.2024 10:11:12.25", utc(2024, 3, 5, 10, 11, 12, 250_000)),
        ("%Y-%m-%dT%H:%M:%S%z", "2024-03-05T10:11:12+0200", utc(2024, 3, 5, 8, 11, 12)),
        ("%d %b %Y %I:%M %p", "05 Mar 2024 02:10 PM", utc(2024, 3, 5, 14, 10)),
        ("%d/%m/%Y %H:%M", "2024-03-05", None),
    ],
)
def test_patterns(pattern: str, text: str, wanted: datetime | None) -> None:
    assert moments([text, None], format=pattern) == [wanted, None]


def test_columns_of_times_are_taken_as_such() -> None:
    assert moments([date(2024, 3, 5)]) == [utc(2024, 3, 5)]
    assert moments([datetime(2024, 7, 1, 12)], time_zone=BERLIN) == [utc(2024, 7, 1, 10)]
    assert moments([datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo"))], time_zone=BERLIN) == [utc(2024, 7, 1, 3)]


def test_numbers_need_a_unit() -> None:
    (told, _) = read([1_700_000_000]).bad
    assert told.rows.to_pylist() == [True]
    assert told.what == "is a number, which format: iso does not read (s, ms, us and ns read what counts from 1970)"


def test_a_change_of_clocks_shifts_or_is_bad() -> None:
    skipped, twice, plain = "2024-03-31 02:30:00", "2024-10-27 02:30:00", "2024-07-01 12:00:00"
    found = moments([skipped, twice, plain], time_zone=BERLIN)
    assert found == [utc(2024, 3, 31, 1), utc(2024, 10, 27, 0, 30), utc(2024, 7, 1, 10)]
    strict = read([skipped, twice, plain], time_zone=BERLIN, dst="bad_row")
    assert strict.ts_us.is_null().to_pylist() == [True, True, False]
    assert strict.bad[0].rows.to_pylist() == [True, True, False]
    assert "told twice in Europe/Berlin" in strict.bad[0].what


@settings(deadline=None)
@given(
    st.datetimes(datetime(1995, 1, 1), datetime(2037, 1, 1)),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
)
def test_local_times_are_those_of_the_standard_library(local: datetime, zone: str) -> None:
    first = local.replace(tzinfo=ZoneInfo(zone), fold=0)
    there_and_back = first.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    (found,) = moments([local.isoformat(sep=" ")], time_zone=zone)
    assert found is not None
    if there_and_back == local:
        assert found == first.astimezone(UTC)
    else:  # skipped: the moment after the gap
        assert found.astimezone(ZoneInfo(zone)).replace(tzinfo=None) > local
        just_before = (found - timedelta(microseconds=1)).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        assert just_before < local


def test_a_zone_or_pattern_that_is_none_is_told() -> None:
    with pytest.raises(InputError, match=r"ts.time_zone: 'Mars/Base' is not in"):
        check_time(TimeConfig(value="t", time_zone="Mars/Base"), "ts")
    check_time(TimeConfig(value="t", time_zone=BERLIN, format="%d.%m.%Y"), "ts")
