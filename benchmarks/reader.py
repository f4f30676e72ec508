"""How fast batches come out of prepared days, and how long a training waits for them.

Our reader, Hugging Face `datasets` and PyTorch's DataLoader read the same files into the same tensors, with buffers and
batches of the same size, one after the other in a round, in an order that turns from round to round; medians are given.
The window is four times their buffers. Then a ranker trains through the semi-synchronous loop on half of it, and the
history of its run says what share of the time it waited for batches.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.reader_peers import data_loader, hugging_face
from benchmarks.report import publish
from benchmarks.rounds import order_of
from pipelines.recipes import find_recipe
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.batches.window import Window
from trainer.model.backbone import Backbone, pretrained_part
from trainer.model.ranker import Ranker
from trainer.recipe import Recipe
from trainer.runs import process_group, train
from trainer.windows.contract import arrow_schema
from trainer.windows.logs import write_day
from trainer.windows.manifest import Partition, load_partition
from trainer.windows.preparation import prepare_day

STORE = ".thawline"
FIRST_DAY = date(2024, 1, 1)
NUM_DAYS = 8
NUM_USERS, NUM_PINS, SLATE_SIZE, HISTORY_LENGTH = 50_000, 200_000, 10, 20
OURS = "thawline"
ROW_BY_ROW = "hugging_face_by_row"
PEERS = ("data_loader", "data_loader_2_workers", "hugging_face", ROW_BY_ROW)


def recipe_of(rows_per_day: int) -> Recipe:
    """The synthetic recipe on such days, with a buffer of a quarter of them."""
    settings = {
        "logs.uri": f"{STORE}/logs/bench-reader-{rows_per_day}",
        "model.history_length": str(HISTORY_LENGTH),
        "training.shuffle_rows": str(NUM_DAYS * rows_per_day // 4),
        "training.batch_rows": "1024",
        "thaw.arm": "single_epoch",
        "lookup.mode": "semi",
    }
    return find_recipe("synthetic").override(settings)


def prepared_days(recipe: Recipe, rows_per_day: int) -> list[Partition]:
    """Days of random impressions, prepared."""
    found = []
    for number in tqdm(range(NUM_DAYS), desc="days", unit="day"):
        day = FIRST_DAY + timedelta(days=number)
        write_day(recipe.logs.uri, day, _log_of(recipe, day, rows_per_day))
        found.append(load_partition(prepare_day(recipe, day, STORE)))
    return found


def _log_of(recipe: Recipe, day: date, num_rows: int) -> pa.Table:
    rng = np.random.default_rng(day.toordinal())
    schema = arrow_schema(recipe.logs)
    begins_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
    slate = np.arange(num_rows) // SLATE_SIZE
    first_slate = (day - FIRST_DAY).days * num_rows
    labels = {
        name: rng.random(num_rows) < rate for name, rate in zip(recipe.logs.labels, (0.1, 0.3, 0.05), strict=True)
    }
    columns: dict[str, Any] = {
        "request_id": first_slate + slate,
        "user_id": rng.integers(NUM_USERS, size=num_rows // SLATE_SIZE + 1)[slate],
        "pin_id": _pins(rng, num_rows),
        "ts": pa.array(begins_us + slate).cast(schema.field("ts").type),
        "position": np.arange(num_rows) % SLATE_SIZE,
        **labels,
        "user_features": _lists(rng.standard_normal((num_rows, recipe.logs.num_user_features))),
        "pin_features": _lists(rng.standard_normal((num_rows, recipe.logs.num_pin_features))),
        "history": _lists(_pins(rng, num_rows * HISTORY_LENGTH).reshape(num_rows, -1)),
        "history_actions": _lists(rng.integers(1, 3, size=(num_rows, HISTORY_LENGTH))),
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def _pins(rng: np.random.Generator, number: int) -> NDArray[np.int64]:
    """Some pins far more often than others, as in a feed."""
    return (NUM_PINS * rng.random(number) ** 3).astype(np.int64)


def _lists(values: NDArray[Any]) -> pa.Array:
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))


def readers(recipe: Recipe, window: Window, files: list[str]) -> dict[str, Callable[[int], Iterator[Any]]]:
    """A pass of each, by its number."""
    ours = SlateReader(window, batch_rows=recipe.training.batch_rows, seed=recipe.training.seed)
    return {
        OURS: ours.epoch,
        "data_loader": lambda _: data_loader(files, recipe, num_workers=0),
        "data_loader_2_workers": lambda _: data_loader(files, recipe, num_workers=2),
        "hugging_face": lambda _: hugging_face(files, recipe, by_row=False),
        ROW_BY_ROW: lambda _: hugging_face(files, recipe, by_row=True),
    }


def rows_per_s(batches: Iterator[Any], most_batches: int | None) -> float:
    """Rows a second from the first request on, over all batches or the first of them."""
    began_s, num_rows = time.perf_counter(), 0
    for batch in islice(batches, most_batches):
        num_rows += len(batch.user_ids_B if isinstance(batch, Batch) else batch["user_ids_B"])
    return num_rows / (time.perf_counter() - began_s)


def compare(recipe: Recipe, window: Window, files: list[str], *, num_rounds: int) -> dict[str, Any]:
    """Rows a second of every reader, and ours over the better peer's."""
    cases = readers(recipe, window, files)
    names = [name for name in cases if name != ROW_BY_ROW]
    for name in names:
        rows_per_s(cases[name](0), 1)  # imports, files in the page cache
    rounds = []
    for number in tqdm(range(num_rounds), desc="reader", unit="round"):
        rounds.append({name: rows_per_s(cases[name](number), None) for name in order_of(names, number)})
    medians = {name: statistics.median(of[name] for of in rounds) for name in names}
    # Slower than all others by so much that a part of a pass, once, says enough.
    medians[ROW_BY_ROW] = rows_per_s(cases[ROW_BY_ROW](0), 40)
    best = max(PEERS, key=lambda name: medians[name])
    against = [of[OURS] / of[best] for of in rounds] if best != ROW_BY_ROW else [medians[OURS] / medians[best]]
    return {
        "vs_best_peer": round(statistics.median(against), 3),
        "best_peer": best,
        "rows_per_s": {name: round(value) for name, value in medians.items()},
    }


def wait_of_training(recipe: Recipe, window: Window) -> dict[str, float]:
    """Trains one pass, tables adapting, and says what share of it waited for batches."""
    with process_group(alone=True) as device:
        torch.manual_seed(0)
        rows = {"user": recipe.tables.num_user_rows, "pin": recipe.tables.num_pin_rows}
        backbone = Backbone(
            rows={table: torch.randn(number, recipe.tables.dim) * 0.1 for table, number in rows.items()},
            state={table: torch.zeros(number) for table, number in rows.items()},
            dense=pretrained_part(Ranker(recipe)),
        )
        run = train(recipe, window, None, backbone, device=device)
    (epoch,) = run.history.epochs
    num_steps = run.history.to_dict()["num_steps"]
    return {
        "wait_share": round(epoch.reader_wait_s / epoch.duration_s, 5),
        "wait_ms": round(1000 * epoch.reader_wait_s / num_steps, 4),
        "step_ms": round(1000 * epoch.duration_s / num_steps, 3),
        "trained_rows_per_s": round(epoch.rows_per_s),
    }


def main() -> None:
    """Prepares the days, reads them in every way, trains on them, and publishes both."""
    parser = argparse.ArgumentParser(prog="make bench-reader", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows: under a minute, and less sure")
    quick = parser.parse_args().quick
    rows_per_day, num_rounds = (40_000, 3) if quick else (160_000, 5)
    torch.set_num_threads(1)
    recipe = recipe_of(rows_per_day)
    days = prepared_days(recipe, rows_per_day)
    began_s = time.perf_counter()
    window = Window(days, recipe)
    index_s = time.perf_counter() - began_s
    figures = compare(recipe, window, [file for day in days for file in day.files], num_rounds=num_rounds)
    figures |= wait_of_training(recipe, Window(days[: NUM_DAYS // 2], recipe))
    setting = {
        "num_rows": window.num_rows,
        "shuffle_rows": recipe.training.shuffle_rows,
        "batch_rows": recipe.training.batch_rows,
        "history_length": HISTORY_LENGTH,
        "index_s": round(index_s, 3),
        "num_rounds": num_rounds,
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    publish("reader", {**figures, **setting}, quick=quick)


if __name__ == "__main__":
    main()
