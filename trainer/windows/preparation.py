"""Prepares one day of a log for training: checked, without duplicates, shuffled by slate, written once.

A prepared day is immutable and content-addressed: its address is the hash of its input files, of this preparation's
version and of the settings that shape it. So the retrain of the next day finds all days but one already there, and a
corrected input makes a new version of its day while windows that name the old one keep it.
"""

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.recipe import Recipe
from trainer.storage.filesystem import exists, stat
from trainer.storage.publishing import ROW_GROUP_ROWS, write_parquet
from trainer.storage.uris import join, name_of
from trainer.windows.contract import EXTRA_TYPES, arrow_schema
from trainer.windows.logs import Fingerprint
from trainer.windows.manifest import PARTITION_JSON, publish_partition
from trainer.windows.mixing import mix64
from trainer.windows.reading import fingerprint_day, read_day

PREPARATION_VERSION = 2
"""Raise it whenever the same inputs and settings would give other rows or another order."""

_log = logging.getLogger(__name__)


def prepare_day(recipe: Recipe, day: date, store: str) -> str:
    """Prepares `day`, unless it is there already, and says where it lies.

    Exact duplicates of (``request_id``, ``pin_id``) are dropped but for the newest ``ts``. The rows of a slate stay
    together, in the order of ``position``; the slates are shuffled by the recipe's seed. Two processes that prepare one
    day at once end with one result and no damage.

    Args:
        recipe: Where the log lies, its shape, and the seed of the shuffle.
        day: UTC day.
        store: Folder that everything we write is kept in.

    Returns:
        Path of the partition's folder, ``<store>/partitions/dt=YYYY-MM-DD/<address>``; it holds
        ``part-00000-<writer>.parquet`` and, written last and once, the ``partition.json`` that names it.

    Raises:
        InputError: There is no such day, it breaks the log contract, or `store` cannot be written to. Nothing is
            published then.
    """
    started_s = time.monotonic()
    target = _partition_folder(recipe, day, fingerprint_day(recipe.logs, day), store)
    if exists(join(target, PARTITION_JSON)):
        _log.info("%s: prepared already", target)
        return target
    reading = read_day(recipe.logs, day)
    assert reading.table is not None
    target = _partition_folder(recipe, day, reading.inputs, store)
    kept = _keep_newest(reading.table)
    order = kept[_slate_order(reading.table, kept, recipe.window.shuffle_seed)]
    extras = [name for name in EXTRA_TYPES if name in reading.table.column_names]
    table = _take(reading.table, order, arrow_schema(recipe.logs, extras))
    content = _partition_json(recipe, day, reading.inputs, table, num_duplicates=reading.table.num_rows - len(kept))
    _publish(target, table, content)
    _log.info("%s: %d rows in %.1f s", target, table.num_rows, time.monotonic() - started_s)
    return target


def _publish(target: str, table: pa.Table, content: dict[str, Any]) -> None:
    """Writes the rows under a name of this writer's own, then names them."""
    file = join(target, f"part-00000-{uuid.uuid4().hex[:8]}.parquet")
    write_parquet(file, table)
    entry = {"name": name_of(file), "num_rows": table.num_rows, "num_bytes": stat(file).num_bytes}
    publish_partition(target, {**content, "files": [entry]})


def _partition_folder(recipe: Recipe, day: date, inputs: Sequence[Fingerprint], store: str) -> str:
    identity = {
        "day": day.isoformat(),
        "inputs": [asdict(fingerprint) for fingerprint in inputs],
        "preparation_version": PREPARATION_VERSION,
        "settings": _settings(recipe),
    }
    address = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return join(store, "partitions", f"dt={day}", address)


def _settings(recipe: Recipe) -> dict[str, Any]:
    """What of the recipe shapes a prepared day."""
    return {
        "labels": list(recipe.logs.labels),
        "num_user_features": recipe.logs.num_user_features,
        "num_pin_features": recipe.logs.num_pin_features,
        "shuffle_seed": recipe.window.shuffle_seed,
    }


def _partition_json(
    recipe: Recipe, day: date, inputs: Sequence[Fingerprint], table: pa.Table, *, num_duplicates: int
) -> dict[str, Any]:
    return {
        "day": day.isoformat(),
        "num_rows": table.num_rows,
        "num_slates": len(np.unique(_int64(table, "request_id"))),
        "columns": table.column_names,
        "filters": {"num_duplicates": num_duplicates},
        "inputs": [asdict(fingerprint) for fingerprint in inputs],
        "preparation_version": PREPARATION_VERSION,
        "settings": _settings(recipe),
    }


def _keep_newest(table: pa.Table) -> NDArray[np.int64]:
    """Rows to keep, one for each (request, pin): that of the newest ``ts``, of equal ones the last."""
    request, pin, ts = (_int64(table, name) for name in ("request_id", "pin_id", "ts"))
    # lexsort is stable, so rows of one (request, pin, ts) stay in the order of the files.
    order = np.lexsort((ts, pin, request))
    is_last = np.ones(len(order), dtype=np.bool_)
    is_last[:-1] = (request[order[1:]] != request[order[:-1]]) | (pin[order[1:]] != pin[order[:-1]])
    return order[is_last]


def _slate_order(table: pa.Table, kept: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Indices into `kept`: slates in the order of a seeded hash of their id, then positions, then pins.

    The hash is one-to-one, so slates never interleave, and the order of two slates depends on no third: shards of a
    day, or a day with late rows, keep it.
    """
    request, pin, position = (_int64(table, name)[kept] for name in ("request_id", "pin_id", "position"))
    return np.lexsort((pin, position, mix64(request.astype(np.uint64) + mix64(np.array([seed]).astype(np.uint64)))))


def _take(table: pa.Table, order: NDArray[np.int64], schema: pa.Schema) -> pa.Table:
    """Rows of `table` in `order`, in chunks of a row group."""
    # Arrow joins a column's chunks to take from it, and only the large types can hold more than 2 GiB of images in one.
    large = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}
    wide = pa.schema([field.with_type(large.get(field.type, field.type)) for field in schema])
    whole = table.cast(wide).combine_chunks()
    starts = range(0, len(order), ROW_GROUP_ROWS)
    parts = [whole.take(pa.array(order[start : start + ROW_GROUP_ROWS])).cast(schema) for start in starts]
    return pa.concat_tables(parts)


def _int64(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = table[name]
    values = column.cast(pa.int64()) if name != "ts" else column.cast(pa.timestamp("us")).cast(pa.int64())
    numbers: NDArray[np.int64] = values.to_numpy()
    return numbers
