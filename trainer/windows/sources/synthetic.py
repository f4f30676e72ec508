"""Draws a feed from a known model, `trainer.windows.sources.world`, and writes it as a log in the contract.

The order of pins within a slate is random, so the fall of clicks with ``position`` is the logged propensities' alone.
Labels depend on each other: a save is a clicked pin, a hide an examined one that was not clicked. Features are weak
views of what was known before the day, ``history`` of what was engaged with before the slate.
"""

import logging
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trainer.errors import InputError
from trainer.recipe import LogsConfig
from trainer.storage.publishing import ROW_GROUP_ROWS
from trainer.storage.uris import local_path
from trainer.windows.contract import arrow_schema
from trainer.windows.logs import list_days, write_day
from trainer.windows.sources.media import thumbnails, titles
from trainer.windows.sources.world import (
    NUM_PROJECTIONS,
    Doubles,
    Floats,
    Ints,
    Probabilities,
    SyntheticConfig,
    World,
    examination,
)

__all__ = ["ACTION_CLICK", "ACTION_SAVE", "SyntheticConfig", "synthesize", "synthetic_logs", "true_save_probability"]

ACTION_CLICK = 1
"""In ``history_actions``: the pin was clicked and not saved."""
ACTION_SAVE = 2
"""In ``history_actions``: the pin was saved."""

_FEED = 3
_DAY_US = 86_400_000_000
_log = logging.getLogger(__name__)


def synthetic_logs(uri: str) -> LogsConfig:
    """The shape of a synthetic log at `uri`.

    ``user_features`` are noisy projections of the latent vector, then log counts of impressions and of engagements on
    earlier days; ``pin_features`` are the same projections of the pin, then log age in days and log count of
    impressions.
    """
    num_features = NUM_PROJECTIONS + 2
    labels = ("save", "click", "hide")
    return LogsConfig(uri=uri, labels=labels, num_user_features=num_features, num_pin_features=num_features)


def synthesize(config: SyntheticConfig, out: str) -> None:
    """Writes the log as ``<out>/dt=YYYY-MM-DD/part-00000.parquet``, a day at a time.

    Raises:
        InputError: `out` holds days that this log does not have, or cannot be written to.
    """
    days = [config.first_day + timedelta(days=offset) for offset in range(config.num_days)]
    strangers = set(list_days(out)) - set(days) if local_path(out).is_dir() else set()
    if strangers:
        raise InputError(f"{out}: holds {min(strangers)}, which is not of this log; choose an empty folder")
    world, feed = World(config), _Feed(config)
    for day in days:
        if day != config.first_day:
            world.advance()
        started_s = time.monotonic()
        table = feed.draw_day(world, day)
        write_day(out, day, table)
        _log.info("%s: %d rows in %.1f s", day, table.num_rows, time.monotonic() - started_s)


def true_save_probability(config: SyntheticConfig, table: pa.Table) -> Doubles:
    """The probability with which each row of a synthetic log was saved, float64 (N,), in the order of `table`.

    Args:
        config: What the log was drawn from.
        table: Rows of any of its days; reads ``user_id``, ``pin_id``, ``ts`` and ``position``.
    """
    users, pins = (table[name].to_numpy() for name in ("user_id", "pin_id"))
    positions = table["position"].cast(pa.int64()).to_numpy()
    first = (config.first_day - date(1970, 1, 1)).days
    day_indices = table["ts"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() // _DAY_US - first
    truth = np.full(table.num_rows, np.nan)
    world = World(config)
    for day_index in np.unique(day_indices):
        while world.day_index < day_index:
            world.advance()
        rows = day_indices == day_index
        truth[rows] = world.save_probability(users[rows], pins[rows], positions[rows])
    return truth


class _Feed:
    """What the log has seen so far: histories and counts. Draws one day after another.

    Shape legend: S slates of a day, K pins of a slate, H history, U users, P pins; slates are in the order of time.
    """

    def __init__(self, config: SyntheticConfig) -> None:
        self._config = config
        self._history_UH = np.full((config.num_users, config.history_length), -1, np.int64)
        self._actions_UH = np.zeros((config.num_users, config.history_length), np.int8)
        self._user_shown_U = np.zeros(config.num_users, np.int64)
        self._user_engaged_U = np.zeros(config.num_users, np.int64)
        self._pin_shown_P = np.zeros(config.num_pins_ever, np.int64)

    def draw_day(self, world: World, day: date) -> pa.Table:
        """One day of the log, by time and position."""
        config = self._config
        rng = np.random.default_rng((config.seed, _FEED, world.day_index))
        num_slates = config.rows_per_day // config.slate_size
        users_S = rng.choice(config.num_users, num_slates, p=world.user_activity_U / world.user_activity_U.sum())
        pins_SK = _draw_slates(rng, world.exposure_weights(), num_slates, config.slate_size)
        since_midnight_S = np.sort(rng.integers(_DAY_US, size=num_slates))
        users, pins = np.repeat(users_S, config.slate_size), pins_SK.ravel()
        positions = np.tile(np.arange(config.slate_size), num_slates)
        click, save, hide = _draw_labels(rng, world.probabilities(users, pins), examination(positions))
        action_SK = (click * ACTION_CLICK + save * (ACTION_SAVE - ACTION_CLICK)).astype(np.int8).reshape(pins_SK.shape)
        history_SH, history_action_SH = self._histories(users_S, pins_SK, action_SK)
        midnight_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
        columns = {
            "request_id": np.repeat((day.toordinal() << 32) + np.arange(num_slates), config.slate_size),
            "user_id": users,
            "pin_id": pins,
            "ts": np.repeat(midnight_us + since_midnight_S, config.slate_size),
            "position": positions.astype(np.int16),
            "save": save,
            "click": click,
            "hide": hide,
            "user_features": _lists(self._user_features(world, users)),
            "pin_features": _lists(self._pin_features(world, pins)),
            "history": _ragged(history_SH, history_SH >= 0, config.slate_size),
            "history_actions": _ragged(history_action_SH, history_SH >= 0, config.slate_size),
            "propensity": examination(positions).astype(np.float32),
            **self._media(world, pins),
        }
        self._count(users, pins, click)
        return _table(columns)

    def _histories(self, users_S: Ints, pins_SK: Ints, action_SK: NDArray[np.int8]) -> tuple[Ints, NDArray[np.int8]]:
        """What each slate's user engaged with before it, most recent first: pins, padded by -1, and actions (S, H)."""
        history_SH = np.empty((len(users_S), self._config.history_length), np.int64)
        action_SH = np.empty(history_SH.shape, np.int8)
        for slates in _visits(users_S):
            users = users_S[slates]
            history_SH[slates] = self._history_UH[users]
            action_SH[slates] = self._actions_UH[users]
            # Down a slate is later, so its pins are turned over before they go to the front.
            pins = np.concatenate([pins_SK[slates, ::-1], self._history_UH[users]], axis=1)
            actions = np.concatenate([action_SK[slates, ::-1], self._actions_UH[users]], axis=1)
            engaged_first = np.argsort(actions == 0, axis=1, kind="stable")[:, : self._config.history_length]
            actions = np.take_along_axis(actions, engaged_first, axis=1)
            self._history_UH[users] = np.where(actions, np.take_along_axis(pins, engaged_first, axis=1), -1)
            self._actions_UH[users] = actions
        return history_SH, action_SH

    def _user_features(self, world: World, users: Ints) -> Floats:
        counts = np.stack([self._user_shown_U[users], self._user_engaged_U[users]], axis=1)
        return np.concatenate([world.user_view(users), np.log1p(counts).astype(np.float32)], axis=1)

    def _pin_features(self, world: World, pins: Ints) -> Floats:
        known = np.stack([world.pin_age_days(pins), self._pin_shown_P[pins]], axis=1)
        return np.concatenate([world.pin_view(pins), np.log1p(known).astype(np.float32)], axis=1)

    def _media(self, world: World, pins: Ints) -> dict[str, pa.ChunkedArray]:
        shown, rows = np.unique(pins, return_inverse=True)
        latents = world.pin_latents(shown)
        media = {}
        if self._config.with_images:
            media["image"] = _take(thumbnails(latents), rows)
        if self._config.with_text:
            media["text"] = _take(titles(latents), rows)
        return media

    def _count(self, users: Ints, pins: Ints, click: NDArray[np.bool_]) -> None:
        self._user_shown_U += np.bincount(users, minlength=len(self._user_shown_U))
        self._user_engaged_U += np.bincount(users[click], minlength=len(self._user_engaged_U))
        self._pin_shown_P += np.bincount(pins, minlength=len(self._pin_shown_P))


def _visits(users_S: Ints) -> Iterator[Ints]:
    """The slates by how many their user saw before that day: all first visits, then all second ones, and so on."""
    by_user = np.argsort(users_S, kind="stable")
    in_order = users_S[by_user]
    starts = np.flatnonzero(np.diff(in_order, prepend=-1))
    visit = np.empty(len(users_S), np.int64)
    visit[by_user] = np.arange(len(users_S)) - np.repeat(starts, np.diff(starts, append=len(users_S)))
    by_visit = np.argsort(visit, kind="stable")
    yield from np.split(by_visit, np.cumsum(np.bincount(visit))[:-1])


def _draw_slates(rng: np.random.Generator, weights_P: Doubles, num_slates: int, slate_size: int) -> Ints:
    """Pins (S, K), drawn by weight, none twice in a slate."""
    cumulative_P = np.cumsum(weights_P)
    # The last sum is where rounding may push a draw past the end.
    cumulative_P[-1] = np.inf
    total = float(weights_P.sum())
    pins_SK = np.searchsorted(cumulative_P, rng.random((num_slates, slate_size)) * total, side="right")
    while True:
        order = np.argsort(pins_SK, axis=1, kind="stable")
        in_order = np.take_along_axis(pins_SK, order, axis=1)
        again = np.zeros(pins_SK.shape, np.bool_)
        np.put_along_axis(again, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], axis=1)
        if not again.any():
            return pins_SK
        pins_SK[again] = np.searchsorted(cumulative_P, rng.random(np.count_nonzero(again)) * total, side="right")


def _draw_labels(
    rng: np.random.Generator, truth: Probabilities, examined: Doubles
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Click, save and hide, bool (N,) each."""
    is_examined, clicks, saves, hides = rng.random((4, len(examined)))
    seen = is_examined < examined
    click = seen & (clicks < truth.click)
    save = click & (saves < truth.save_if_clicked)
    hide = seen & ~click & (hides < truth.hide_unless_clicked)
    return click, save, hide


def _table(columns: dict[str, object]) -> pa.Table:
    extras = [name for name in ("propensity", "image", "text") if name in columns]
    schema = arrow_schema(synthetic_logs(""), extras)
    arrays = {
        name: pa.array(values, pa.int64()).cast(schema.field(name).type) if name == "ts" else values
        for name, values in columns.items()
    }
    return pa.table(arrays).cast(schema)


def _lists(values_NF: Floats) -> pa.Array:
    num_rows, width = values_NF.shape
    offsets = np.arange(0, (num_rows + 1) * width, width, dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, np.ascontiguousarray(values_NF).ravel())


def _ragged(values_SH: NDArray[np.generic], is_there_SH: NDArray[np.bool_], times: int) -> pa.Array:
    """The values that are there, as one list a slate, repeated for each of its `times` rows."""
    lengths = is_there_SH.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    slates = pa.ListArray.from_arrays(offsets, pa.array(values_SH[is_there_SH]))
    return pc.take(slates, pa.array(np.repeat(np.arange(len(slates)), times)))


def _take(values: pa.Array, rows: Ints) -> pa.ChunkedArray:
    # A chunk of binary values holds 2 GiB at most, so rows are taken a row group at a time.
    starts = range(0, len(rows), ROW_GROUP_ROWS)
    return pa.chunked_array([values.take(pa.array(rows[start : start + ROW_GROUP_ROWS])) for start in starts])
