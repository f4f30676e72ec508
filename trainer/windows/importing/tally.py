"""Counts rows that break a mapping, by key and rule, with the first of each; ends an import that must not go on.

Shape legend: N rows of a chunk.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer.errors import InputError

_MAX_SHOWN = 60


class Fault(NamedTuple):
    """Rows at fault.

    Attributes:
        key: Of the mapping, such as ``ts``.
        rows: Bool (N,), null is false.
        what: What is wrong.
        values: What the source holds, (N,), to show one; None where that says nothing.
    """

    key: str
    rows: pa.BooleanArray | NDArray[np.bool_]
    what: str
    values: pa.Array | None = None


@dataclass
class Counted:
    """Rows that broke one rule.

    Attributes:
        place: Where the first is.
        what: Its key, its value and what is wrong with it.
        num_rows: How many there are.
    """

    place: str
    what: str
    num_rows: int = 0


@dataclass
class Tally:
    """What was found so far.

    Args:
        policy: What the mapping says of bad rows.
    """

    policy: Literal["refuse", "drop"]
    num_rows: int = 0
    num_bad_rows: int = 0
    reasons: dict[tuple[str, str], Counted] = field(default_factory=dict)

    @property
    def is_refused(self) -> bool:
        """Nothing will come of this import; it only goes on to tell of all that is wrong."""
        return self.policy == "refuse" and self.num_bad_rows > 0

    def take(self, faults: list[Fault], num_rows: int, place: Callable[[int], str]) -> NDArray[np.bool_]:
        """Counts a chunk.

        Args:
            faults: What is wrong with it; a row may be in several.
            num_rows: N.
            place: Where a row lies, in words.

        Returns:
            Rows without fault, bool (N,).

        Raises:
            InputError: Every row breaks one rule, and bad rows are refused: reading on would tell nothing more.
        """
        is_bad = np.zeros(num_rows, np.bool_)
        for fault in faults:
            rows = _as_mask(fault.rows)
            num_bad = int(rows.sum())
            if num_bad:
                is_bad |= rows
                first = int(rows.argmax())
                counted = self._reason(fault, first, place)
                counted.num_rows += num_bad
        self.num_rows += num_rows
        self.num_bad_rows += int(is_bad.sum())
        if self.is_refused and num_rows and any(_as_mask(fault.rows).all() for fault in faults):
            self.finish()
        return ~is_bad

    def add(self, key: str, what: str, place: str) -> None:
        """Counts a record that is no row at all."""
        self.num_rows += 1
        self.num_bad_rows += 1
        self.reasons.setdefault((key, what), Counted(place=place, what=f"{key}: {what}")).num_rows += 1

    def finish(self, *, is_empty: bool = False) -> None:
        """After the last row.

        Args:
            is_empty: No impression is left.

        Raises:
            InputError: There are bad rows, and the mapping refuses them or none are left.
        """
        if self.is_refused or (self.num_bad_rows and is_empty):
            first, *others = sorted(self.reasons.values(), key=lambda counted: -counted.num_rows)
            more = "".join(f"; also {other.place}: {other.what} ({_rows(other.num_rows)})" for other in others[:2])
            unsaid = f"; and {len(others) - 2} more rules" if len(others) > 2 else ""
            remedy = "mend them or that key" + (", or set on_bad_row: drop" if self.policy == "refuse" else "")
            raise InputError(f"{first.place}: {first.what} ({_rows(first.num_rows)}){more}{unsaid}; {remedy}")

    def _reason(self, fault: Fault, row: int, place: Callable[[int], str]) -> Counted:
        known = self.reasons.get((fault.key, fault.what))
        if known is None:
            value = "" if fault.values is None else f"'{_shown(fault.values[row])}' "
            known = Counted(place=place(row), what=f"{fault.key}: {value}{fault.what}")
            self.reasons[fault.key, fault.what] = known
        return known


def _as_mask(rows: pa.BooleanArray | NDArray[np.bool_]) -> NDArray[np.bool_]:
    if isinstance(rows, np.ndarray):
        return rows
    return np.asarray(rows.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _rows(number: int) -> str:
    return f"{number:,} row{'s' if number != 1 else ''}"


def _shown(value: pa.Scalar) -> str:
    text = " ".join(str(value.as_py()).split())
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
