from datetime import date

import pytest

from pipelines.cluster.cron import to_utc
from trainer.errors import InputError
from trainer.recipe import ScheduleConfig

WINTER, SUMMER = date(2024, 1, 10), date(2024, 7, 10)


@pytest.mark.parametrize(
    ("cron", "zone", "today", "told"),
    [
        ("0 6 * * *", "UTC", WINTER, "0 0 6 * * *"),
        ("*/15 6-9 1,15 * 1", "UTC", WINTER, "0 */15 6-9 1,15 * 1"),
        ("30 6 * * *", "Europe/Berlin", WINTER, "0 30 5 * * *"),
        ("30 6 * * *", "Europe/Berlin", SUMMER, "0 30 4 * * *"),
        ("0 6 * * *", "Asia/Kolkata", WINTER, "0 30 0 * * *"),
        ("0 1 * * 1", "Asia/Tokyo", WINTER, "0 0 16 * * 0"),
        ("0 1 * * 0-2", "Asia/Tokyo", WINTER, "0 0 16 * * 0,1,6"),
        ("0 1 * * */3", "Asia/Tokyo", WINTER, "0 0 16 * * 2,5,6"),
        ("0 22 * * 5,6", "America/Los_Angeles", WINTER, "0 0 6 * * 0,6"),
        ("0 9 * * 1-5", "America/Los_Angeles", WINTER, "0 0 17 * * 1-5"),
    ],
)
def test_a_time_of_day_is_told_in_utc(cron: str, zone: str, today: date, told: str) -> None:
    assert to_utc(ScheduleConfig(cron=cron, time_zone=zone), today).text == told


def test_it_holds_until_the_clocks_change() -> None:
    assert to_utc(ScheduleConfig(time_zone="Europe/Berlin"), WINTER).holds_until == date(2024, 3, 31)
    assert to_utc(ScheduleConfig(time_zone="Europe/Berlin"), SUMMER).holds_until == date(2024, 10, 27)
    assert to_utc(ScheduleConfig(time_zone="Asia/Tokyo"), WINTER).holds_until is None
    assert to_utc(ScheduleConfig(), WINTER).holds_until is None


def test_an_unknown_zone_is_told() -> None:
    with pytest.raises(InputError, match=r"schedule\.time_zone 'Mars/Olympus'"):
        to_utc(ScheduleConfig(time_zone="Mars/Olympus"), WINTER)
