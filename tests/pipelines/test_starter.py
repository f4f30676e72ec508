from datetime import date, timedelta
from pathlib import Path

import pytest

from pipelines.starter import starter_for
from trainer.recipe import LogsConfig
from trainer.windows.importing.summary import ImportSummary

LOGS = LogsConfig(uri="/logs/mine", labels=("save", "click"), num_user_features=1, num_pin_features=2)


def summary_of(days: list[int], rows_a_day: int = 1000, num_users: int = 10, num_pins: int = 10) -> ImportSummary:
    return ImportSummary(
        days={(date(2024, 1, 1) + timedelta(days=day)).isoformat(): rows_a_day for day in days},
        gaps=(),
        num_rows=rows_a_day * len(days),
        num_dropped=0,
        dropped=(),
        label_rates={},
        num_users=num_users,
        num_pins=num_pins,
        mean_history=0.0,
        empty_history_share=0.0,
        num_engagements=0,
        num_joined=0,
        num_bytes=0,
        duration_s=0.0,
    )


@pytest.mark.parametrize(
    ("days", "in_a_row", "train", "earlier"),
    [
        (range(1), 1, 1, 1),
        (range(2), 2, 1, 1),
        (range(3), 3, 1, 1),
        (range(8), 8, 3, 4),
        (range(41), 41, 20, 20),
        (range(200), 200, 20, 60),
        ([0, 1, 2, 3, 6, 7, 8, 9], 4, 1, 2),
    ],
)
def test_spans_fit_the_days_in_a_row(days: list[int], in_a_row: int, train: int, earlier: int) -> None:
    starter = starter_for(Path("My Feed-2"), LOGS, 32, summary_of(list(days)))
    recipe = starter.recipe
    assert (starter.num_days, recipe.window.num_days, recipe.backbone.num_days) == (in_a_row, train, earlier)
    assert starter.is_enough == (in_a_row >= 3)
    assert not starter.is_enough or train + earlier + 1 <= in_a_row
    assert starter.date == date(2024, 1, 2) + timedelta(days=max(days))
    assert recipe.name == "my_feed_2"
    assert recipe.losses.head_weights == (1.0, 0.5)


def test_tables_and_batches_fit_the_log() -> None:
    small = starter_for(Path("a"), LOGS, 5, summary_of(list(range(8)), rows_a_day=80)).recipe
    assert (small.tables.num_user_rows, small.tables.num_pin_rows, small.training.batch_rows) == (1024, 1024, 32)
    assert small.model.history_length == 5
    large = starter_for(Path("a"), LOGS, 64, summary_of(list(range(60)), 100_000, 50_000, 400_000)).recipe
    assert (large.tables.num_user_rows, large.tables.num_pin_rows, large.training.batch_rows) == (65_536, 524_288, 256)
    assert large.model.history_length == 20
