from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.windows.importing.joining import Joiner
from trainer.windows.importing.spilling import DAY_US, Scratch

HALF_DAY = DAY_US // 2
RECORDS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 9)), max_size=25)

Record = tuple[int, int, int]


def naive(impressions: list[Record], events: list[Record], within: int) -> list[int]:
    """For each event, in half days, the last impression of its key not after it and not longer ago than `within`."""
    found = [0] * len(impressions)
    for number, (user, pin, time) in enumerate(events):
        before = [
            (its_time, index)
            for index, (its_user, its_pin, its_time) in enumerate(impressions)
            if (its_user, its_pin) == (user, pin) and its_time <= time
        ]
        if before and time - max(before)[0] <= within:
            found[max(before)[1]] |= 1 << number % 3
    return found


def lay_down(scratch: Scratch, impressions: list[Record], events: list[Record]) -> None:
    for kind, records in (("keys", impressions), ("events", events)):
        columns = np.array(records, np.int64).reshape(-1, 3).T
        table = pa.table({"user_id": columns[0], "pin_id": columns[1], "ts": columns[2] * HALF_DAY})
        if kind == "events":
            table = table.append_column("bits", pa.array(1 << np.arange(len(records)) % 3))
        scratch.add(kind, table, columns[2] * HALF_DAY)  # type: ignore[arg-type]
    scratch.flush()


@settings(max_examples=60, deadline=None)
@given(RECORDS, RECORDS, st.integers(0, 5))
def test_joined_labels_are_those_of_a_naive_oracle(
    impressions: list[Record], events: list[Record], within: int
) -> None:
    with TemporaryDirectory() as folder:
        scratch = Scratch(Path(folder))
        lay_down(scratch, impressions, events)
        joiner = Joiner(scratch, ("user_id", "pin_id"), within * HALF_DAY)
        wanted = naive(impressions, events, within)
        for day in scratch.days("keys"):
            of_day = [index for index, (_, _, time) in enumerate(impressions) if time * HALF_DAY // DAY_US == day]
            bits = joiner.bits_of(day, len(of_day))
            scratch.drop("keys", day)
            assert bits.tolist() == [wanted[index] for index in of_day]
