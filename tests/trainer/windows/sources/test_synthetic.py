from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainer.errors import InputError
from trainer.windows.check import check_logs
from trainer.windows.contract import arrow_schema
from trainer.windows.sources.synthetic import (
    ACTION_CLICK,
    ACTION_SAVE,
    SyntheticConfig,
    synthesize,
    synthetic_logs,
    true_save_probability,
)

CONFIG = SyntheticConfig(
    first_day=date(2024, 2, 28),
    num_days=4,
    num_users=300,
    num_pins=1000,
    num_fresh_pins=50,
    rows_per_day=6000,
    slate_size=6,
    history_length=8,
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synthetic")
    synthesize(CONFIG, str(out))
    return out


@pytest.fixture(scope="module")
def rows(log: Path) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(log.rglob("*.parquet"))])


def labels_of(rows: pa.Table, name: str) -> np.ndarray:
    return np.asarray(rows[name].to_numpy(zero_copy_only=False))


def test_the_log_passes_its_own_check(log: Path, rows: pa.Table) -> None:
    report = check_logs(synthetic_logs(str(log)))
    assert report.problems == ()
    assert [summary.day for summary in report.days] == [
        CONFIG.first_day + timedelta(days=offset) for offset in range(4)
    ]
    for summary in report.days:
        assert (summary.num_rows, summary.num_slates, summary.num_duplicates) == (6000, 1000, 0)
        assert summary.label_rates["click"] > summary.label_rates["save"] > summary.label_rates["hide"] > 0
    assert rows.schema.equals(arrow_schema(synthetic_logs(""), ["propensity", "image", "text"]))


def test_a_seed_is_a_log_and_a_longer_log_begins_with_the_shorter(log: Path, tmp_path: Path) -> None:
    synthesize(replace(CONFIG, num_days=2), str(tmp_path / "shorter"))
    synthesize(replace(CONFIG, num_days=2, seed=1), str(tmp_path / "other"))
    for offset in range(2):
        name = f"dt={CONFIG.first_day + timedelta(days=offset)}/part-00000.parquet"
        assert (tmp_path / "shorter" / name).read_bytes() == (log / name).read_bytes()
        assert (tmp_path / "other" / name).read_bytes() != (log / name).read_bytes()


def test_labels_depend_on_each_other(rows: pa.Table) -> None:
    click, save, hide = (labels_of(rows, name) for name in ("click", "save", "hide"))
    assert not (save & ~click).any()
    assert not (hide & click).any()
    assert 0.05 < save.mean() < click.mean() < 0.4
    assert 0 < hide.mean() < 0.02


def test_clicks_fall_with_the_position_as_the_propensities_say(rows: pa.Table) -> None:
    click, position, propensity = labels_of(rows, "click"), labels_of(rows, "position"), labels_of(rows, "propensity")
    rates = np.array([click[position == place].mean() for place in range(CONFIG.slate_size)])
    logged = np.array([propensity[position == place][0] for place in range(CONFIG.slate_size)])
    assert logged[0] == 1.0
    assert (np.diff(logged) < 0).all()
    # 4000 clicks draws a position: a standard error of about 4% of a rate.
    np.testing.assert_allclose(rates / rates[0], logged, rtol=0.16)
    assert rates[-1] < 0.75 * rates[0]


def test_the_truth_is_the_rate_of_saves(rows: pa.Table) -> None:
    truth, save = true_save_probability(CONFIG, rows), labels_of(rows, "save")
    assert abs(truth.mean() - save.mean()) < 4 * np.sqrt(truth.mean() / len(truth))
    fifths = np.array_split(np.argsort(truth), 5)
    for fifth in fifths:
        assert abs(truth[fifth].mean() - save[fifth].mean()) < 4 * np.sqrt(truth[fifth].mean() / len(fifth))
    assert truth[fifths[-1]].mean() > 5 * truth[fifths[0]].mean()
    backwards = pa.concat_tables([rows.slice(12_000, 500), rows.slice(0, 500)])
    np.testing.assert_array_equal(
        true_save_probability(CONFIG, backwards), np.concatenate([truth[12_000:12_500], truth[:500]])
    )


def test_histories_are_the_last_engagements_before_the_slate(rows: pa.Table) -> None:
    """Replays the whole log slate by slate and demands equality."""
    engaged: dict[int, list[tuple[int, int]]] = {}
    columns = ("request_id", "user_id", "pin_id", "ts", "save", "click", "history", "history_actions")
    logged = rows.select(columns).to_pylist()
    lengths = set()
    for start in range(0, len(logged), CONFIG.slate_size):
        slate = logged[start : start + CONFIG.slate_size]
        assert len({(row["request_id"], row["user_id"], row["ts"]) for row in slate}) == 1
        known = engaged.setdefault(slate[0]["user_id"], [])
        expected = known[: CONFIG.history_length]
        for row in slate:
            assert list(zip(row["history"], row["history_actions"], strict=True)) == expected
        for row in slate:
            if row["click"]:
                known.insert(0, (row["pin_id"], ACTION_SAVE if row["save"] else ACTION_CLICK))
        lengths.add(len(expected))
    times = [row["ts"] for row in logged]
    assert times == sorted(times)
    assert lengths == set(range(CONFIG.history_length + 1))


def test_features_know_earlier_days_only(rows: pa.Table) -> None:
    days = rows["ts"].cast(pa.date32()).to_numpy()
    user, pin = labels_of(rows, "user_id"), labels_of(rows, "pin_id")
    user_features, pin_features = (np.stack(list(labels_of(rows, name))) for name in ("user_features", "pin_features"))
    third = np.unique(days)[2]
    earlier, today = days < third, days == third
    shown = np.bincount(user[earlier], minlength=CONFIG.num_users)[user[today]]
    np.testing.assert_allclose(user_features[today, -2], np.log1p(shown), rtol=1e-5)
    shown = np.bincount(pin[earlier], minlength=CONFIG.num_pins_ever)[pin[today]]
    np.testing.assert_allclose(pin_features[today, -1], np.log1p(shown), rtol=1e-5)


def test_pins_have_a_long_tail_and_fresh_ones_come_every_day(rows: pa.Table) -> None:
    pin = labels_of(rows, "pin_id")
    counts = np.sort(np.bincount(pin))[::-1]
    assert counts[:100].sum() > 0.3 * len(pin)
    assert np.median(counts[counts > 0]) < counts.mean()
    for offset in range(CONFIG.num_days):
        newest = CONFIG.num_pins + (offset + 1) * CONFIG.num_fresh_pins - 1
        today = pin[6000 * offset : 6000 * (offset + 1)]
        assert newest - CONFIG.num_fresh_pins < today.max() <= newest


def test_thumbnails_and_titles_belong_to_pins(rows: pa.Table) -> None:
    of_pin = {row["pin_id"]: row for row in rows.select(["pin_id", "image", "text"]).to_pylist()}
    assert len({row["image"] for row in of_pin.values()}) > 0.9 * len(of_pin)
    assert len({row["text"] for row in of_pin.values()}) >= 12
    for row in rows.slice(0, 200).select(["pin_id", "image", "text"]).to_pylist():
        assert row == of_pin[row["pin_id"]]


def test_media_may_be_left_out(tmp_path: Path) -> None:
    synthesize(replace(CONFIG, num_days=1, with_images=False, with_text=False), str(tmp_path))
    assert check_logs(synthetic_logs(str(tmp_path))).is_sound
    (file,) = tmp_path.rglob("*.parquet")
    assert pq.read_schema(file).equals(arrow_schema(synthetic_logs(""), ["propensity"]))


def test_settings_out_of_range_and_a_folder_of_another_log_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="num_pins is 20; set it to 40 or more"):
        SyntheticConfig(num_pins=20)
    with pytest.raises(InputError, match="num_days is 0"):
        SyntheticConfig(num_days=0)
    synthesize(replace(CONFIG, num_days=1), str(tmp_path))
    with pytest.raises(InputError, match="holds 2024-02-28, which is not of this log; choose an empty folder"):
        synthesize(replace(CONFIG, num_days=1, first_day=date(2024, 3, 1)), str(tmp_path))
