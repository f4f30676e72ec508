"""The profile of a prepared day: what its rows look like, in fixed memory, made while they stream by.

The preparation adds each chunk of rows, without duplicates and before negatives are sampled, and writes the result into
the day's ``partition.json``, under ``profile``. Profiles add up, shards to days and days to windows, so the checks of a
window read no row again: a new day costs that day's work, however long the window is.
"""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trainer.recipe import LogsConfig
from trainer.windows.quality.distinct import DistinctIds
from trainer.windows.quality.histograms import Histograms

PROFILE_VERSION = 1
"""Part of a prepared day's identity; raise it whenever profiles of before could not be held against new ones."""

NUM_HOURS = 24

_NUM_PINS = 16_384
_NUM_USERS = 4_096
_HOUR_US = 3_600_000_000


class DayProfile:
    """Counts, rates and histograms of the rows of one day, or of one shard of it.

    Attributes:
        num_rows: Rows added.
        num_files: Raw files noted.
        raw_columns: Columns of the raw files, by name, with the types as text; of a column whose type differs between
            files, all of them. A column that some files lack has ``missing`` among them.
        num_nulls: Nulls, by column.
        num_positive: Rows on which a label is true, by label.
        rows_by_hour: Rows, by hour of the UTC day.
        values: Histograms of every number that a row has: each feature, position, history length, propensity.
        users: Distinct users.
        pins: Distinct pins.
    """

    def __init__(self, logs: LogsConfig) -> None:
        self._labels = logs.labels
        self._lengths = {"user_features": logs.num_user_features, "pin_features": logs.num_pin_features}
        self.num_rows = 0
        self.raw_columns: dict[str, list[str]] = {}
        self.num_nulls: dict[str, int] = {}
        self.num_positive = dict.fromkeys(logs.labels, 0)
        self.rows_by_hour: NDArray[np.int64] = np.zeros(NUM_HOURS, np.int64)
        self.values: dict[str, Histograms] = {}
        self.users = DistinctIds(_NUM_USERS)
        self.pins = DistinctIds(_NUM_PINS)
        self.num_files = 0

    def add_file(self, schema: pa.Schema) -> None:
        """Notes the columns of one raw file, as it was found, those that the contract does not know among them."""
        found = {field.name: str(field.type) for field in schema}
        for name in {**self.raw_columns, **found}:
            kinds = set(self.raw_columns.get(name, ["missing"] if self.num_files else []))
            self.raw_columns[name] = sorted(kinds | {found.get(name, "missing")})
        self.num_files += 1

    def add(self, table: pa.Table) -> None:
        """Adds rows.

        Args:
            table: Columns of the contract in its types, see `trainer.windows.contract.arrow_schema`; any number
                of rows.
        """
        for name in table.column_names:
            self.num_nulls[name] = self.num_nulls.get(name, 0) + table[name].null_count
        if not table.num_rows:
            return
        self.num_rows += table.num_rows
        for label in self._labels:
            self.num_positive[label] += pc.sum(table[label]).as_py() or 0
        hours = _microseconds(table["ts"]) // _HOUR_US % NUM_HOURS
        self.rows_by_hour += np.bincount(hours, minlength=NUM_HOURS)
        for name, values_NF in self._numbers(table):
            self.values.setdefault(name, Histograms(values_NF.shape[1])).add(values_NF)
        self.users.add(table["user_id"].to_numpy())
        self.pins.add(table["pin_id"].to_numpy())

    def _numbers(self, table: pa.Table) -> Iterator[tuple[str, NDArray[np.float32]]]:
        for name, length in self._lengths.items():
            flat = pc.list_flatten(table[name]).to_numpy()
            yield name, flat.astype(np.float32, copy=False).reshape(-1, length)
        scalars = {"position": table["position"], "history_length": pc.list_value_length(table["history"])}
        if "propensity" in table.column_names:
            scalars["propensity"] = table["propensity"]
        for name, column in scalars.items():
            yield name, column.to_numpy().astype(np.float32).reshape(-1, 1)

    def merge(self, other: Self) -> None:
        """Adds what `other` has seen, of the same log: another shard, or another day."""
        for name in {**self.raw_columns, **other.raw_columns}:
            kinds = {*self._kinds(name), *other._kinds(name)}
            self.raw_columns[name] = sorted(kinds)
        self.num_files += other.num_files
        self.num_rows += other.num_rows
        for name, count in other.num_nulls.items():
            self.num_nulls[name] = self.num_nulls.get(name, 0) + count
        for label, count in other.num_positive.items():
            self.num_positive[label] = self.num_positive.get(label, 0) + count
        self.rows_by_hour = self.rows_by_hour + other.rows_by_hour
        for name, histograms in other.values.items():
            self.values.setdefault(name, Histograms(len(histograms.sums_F))).merge(histograms)
        self.users.merge(other.users)
        self.pins.merge(other.pins)

    def _kinds(self, name: str) -> list[str]:
        return self.raw_columns.get(name, ["missing"] if self.num_files else [])

    def to_json(self) -> dict[str, Any]:
        """The profile as plain JSON values; `from_json` reads it back."""
        return {
            "profile_version": PROFILE_VERSION,
            "num_rows": self.num_rows,
            "num_files": self.num_files,
            "raw_columns": self.raw_columns,
            "num_nulls": self.num_nulls,
            "num_positive": self.num_positive,
            "rows_by_hour": self.rows_by_hour.tolist(),
            "values": {name: histograms.to_json() for name, histograms in self.values.items()},
            "users": self.users.to_json(),
            "pins": self.pins.to_json(),
        }

    @classmethod
    def from_json(cls, logs: LogsConfig, content: dict[str, Any]) -> Self:
        """Reads what `to_json` wrote.

        Args:
            logs: Of the recipe that the day was prepared by.
            content: What was written.
        """
        profile = cls(logs)
        profile.num_rows, profile.num_files = content["num_rows"], content["num_files"]
        profile.raw_columns = dict(content["raw_columns"])
        profile.num_nulls, profile.num_positive = dict(content["num_nulls"]), dict(content["num_positive"])
        profile.rows_by_hour = np.array(content["rows_by_hour"], np.int64)
        profile.values = {name: Histograms.from_json(columns) for name, columns in content["values"].items()}
        profile.users, profile.pins = DistinctIds.from_json(content["users"]), DistinctIds.from_json(content["pins"])
        return profile


def _microseconds(column: pa.ChunkedArray) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    return numbers
