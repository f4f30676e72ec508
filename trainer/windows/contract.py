"""The log contract: one row is one impression, a pin shown to a user in a slate.

A log lies in ``<logs.uri>/dt=YYYY-MM-DD/*.parquet``, one folder a UTC day. Everything in a row was known at ``ts``; labels
came after. This module is the contract's only definition; `trainer.windows.validation` holds a table against it.
"""

from collections.abc import Sequence

import pyarrow as pa

from trainer.recipe import LogsConfig

ID_COLUMNS = ("request_id", "user_id", "pin_id")
EXTRA_TYPES = {"propensity": pa.float32(), "image": pa.binary(), "text": pa.string()}


def arrow_schema(logs: LogsConfig, extras: Sequence[str] = ()) -> pa.Schema:
    """The columns of a log, in the order in which they are written. No column holds nulls.

    Args:
        logs: Names the label columns; its feature lengths are checked by validation, not by the types.
        extras: Optional columns to include, among ``propensity``, ``image`` and ``text``.

    Returns:
        ``request_id`` (the slate), ``user_id`` and ``pin_id`` int64, not negative; ``ts`` timestamp[us, UTC]; ``position``
        int16, 0 is the top; one bool a label; ``user_features`` and ``pin_features`` list<float32> of fixed length;
        ``history`` list<int64>, the user's last engaged pins, most recent first, with ``history_actions`` list<int8> of
        the same length; then ``propensity`` float32 in (0, 1], ``image`` binary, ``text`` string, those that were asked for.
    """
    columns = {
        "request_id": pa.int64(),
        "user_id": pa.int64(),
        "pin_id": pa.int64(),
        "ts": pa.timestamp("us", tz="UTC"),
        "position": pa.int16(),
        **{label: pa.bool_() for label in logs.labels},
        "user_features": pa.list_(pa.float32()),
        "pin_features": pa.list_(pa.float32()),
        "history": pa.list_(pa.int64()),
        "history_actions": pa.list_(pa.int8()),
        **{name: kind for name, kind in EXTRA_TYPES.items() if name in extras},
    }
    unknown = set(extras) - set(EXTRA_TYPES)
    assert not unknown, f"no such optional columns: {sorted(unknown)}"
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])
