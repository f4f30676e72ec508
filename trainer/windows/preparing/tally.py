"""What a scan found wrong with a day: counts by reason, and for a person one line for each file, column and rule.

Shape suffixes: N rows.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.windows.contract import Breach, breach_line

Order = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """Breaches of one rule in one file.

    Attributes:
        file: Which.
        first_row: The first row with it.
        num_rows: How many there are.
        breach: What is wrong with the first.
    """

    file: str
    first_row: int
    num_rows: int
    breach: Breach


class Tally:
    """Gathers from many threads; nothing depends on which of them comes first.

    Attributes:
        num_rows: Rows of the day that were looked at.
        num_left: Rows left to the day before, which they belong to.
        num_broken: Rows that break the contract.
        reasons: How many, by the first rule that a row breaks, as ``column: rule``.
        lines: What is wrong with whole files, by their index.
    """

    def __init__(self, lines: Sequence[tuple[int, str]] = ()) -> None:
        self.num_rows = self.num_left = self.num_broken = 0
        self.reasons: Counter[str] = Counter()
        self.lines = list(lines)
        self._sightings: dict[tuple[int, int], Sighting] = {}
        self._lock = threading.Lock()

    def add_line(self, index: int, line: str) -> None:
        """Notes what is wrong with a whole file."""
        with self._lock:
            self.lines.append((index, line))

    def add_rows(self, num_rows: int, num_left: int) -> None:
        """Counts rows looked at, and rows left to the day before."""
        with self._lock:
            self.num_rows += num_rows
            self.num_left += num_left

    def add_broken(self, reasons: Sequence[str]) -> None:
        """Counts broken rows by their reasons."""
        with self._lock:
            self.num_broken += len(reasons)
            self.reasons.update(reasons)

    def add_breaches(self, index: int, file: str, breaches: Sequence[Breach], numbers_N: NDArray[np.int64]) -> None:
        """Notes breaches in some rows of a file.

        Args:
            index: Of the file.
            file: Its name.
            breaches: See `trainer.windows.contract.find_breaches`.
            numbers_N: Where each of the rows stands in the file.
        """
        for number, breach in enumerate(breaches):
            rows = breach.bad_rows.unique()
            if len(rows):
                first_row = int(numbers_N[rows[0].as_py()])
                found = Sighting(file=file, first_row=first_row, num_rows=len(rows), breach=breach)
                with self._lock:
                    self._add((index, number), found)

    def _add(self, key: tuple[int, int], found: Sighting) -> None:
        known = self._sightings.get(key, found)
        first = min(known, found, key=lambda sighting: sighting.first_row)
        num_rows = found.num_rows if known is found else known.num_rows + found.num_rows
        self._sightings[key] = Sighting(
            file=first.file, first_row=first.first_row, num_rows=num_rows, breach=first.breach
        )

    def sightings(self) -> list[Sighting]:
        """Breaches by file and rule."""
        return [self._sightings[key] for key in sorted(self._sightings)]

    def problems(self) -> list[str]:
        """One line each, by file; what is wrong with a whole file comes before what is wrong with its rows."""
        lines: list[tuple[Order, str]] = [((index, 0, place), line) for place, (index, line) in enumerate(self.lines)]
        for (index, number), seen in self._sightings.items():
            line = breach_line(seen.file, seen.breach, seen.first_row, seen.num_rows)
            lines.append(((index, 1, number), line))
        return [line for _, line in sorted(lines)]
