"""Days in a bucket, prepared and read through a proxy that breaks a third of all requests."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest
import torch

from tests import gcs
from tests.faults import ledger
from tests.faults.checks import check_nothing, check_same, check_told, check_whole
from tests.faults.conftest import DAYS, Log, recipe_of
from tests.faults.proxy import PASSING, Weather, proxied
from trainer.batches.batch import Batch
from trainer.batches.reader import SlateReader
from trainer.batches.window import open_window
from trainer.recipe import Recipe
from trainer.storage.uris import join
from trainer.windows.manifest import assemble_window, load_window
from trainer.windows.preparation import prepare_day

pytestmark = pytest.mark.faults

SEEDS = tuple(range(1, 9))


@pytest.fixture(scope="session")
def remote(gcs_server: str, log: Log) -> str:
    """The log in a bucket."""
    bucket = gcs.make_bucket(gcs_server, "faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", gcs_server)
        upload(log.uri, join(bucket, "log"))
    return join(bucket, "log")


def upload(folder: str, uri: str) -> None:
    from trainer.storage.gcs import blob, budget

    for path in Path(folder).rglob("*.parquet"):
        blob(join(uri, str(path.relative_to(folder)))).upload_from_filename(str(path), **budget())


@pytest.fixture
def weather(
    request: pytest.FixtureRequest, gcs_server: str, monkeypatch: pytest.MonkeyPatch, remote: str
) -> Iterator[Weather]:
    """What the test's parameters ask for; all of Google's clients go through it."""
    weather = Weather(**getattr(request, "param", {"seed": 0}))
    with proxied(gcs_server, weather) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        monkeypatch.setenv("THAWLINE_STORAGE_RETRY_S", "60")
        yield weather
    ledger.injected.update(weather.injected)
    ledger.seeds.append(weather.seed)


def batches(window: str, recipe: Recipe) -> list[Batch]:
    """One pass over a window."""
    reader = SlateReader(open_window(load_window(window).days, recipe), batch_rows=64, seed=3)
    return list(reader.epoch(0))


def same(one: Batch, other: Batch) -> bool:
    def equal(mine: object, theirs: object) -> bool:
        return torch.equal(mine, theirs) if isinstance(mine, torch.Tensor) else mine == theirs

    return all(equal(value, vars(other)[name]) for name, value in vars(one).items())


@pytest.fixture(scope="session")
def wanted(log: Log, tmp_path_factory: pytest.TempPathFactory) -> list[Batch]:
    """The batches without faults."""
    store = str(tmp_path_factory.mktemp("wanted"))
    window = assemble_window([prepare_day(log.recipe, day, store) for day in DAYS], store, has_heldout=False)
    return batches(window, log.recipe)


@pytest.mark.parametrize("weather", [{"seed": seed} for seed in SEEDS], indirect=True, ids=map(str, SEEDS))
def test_whatever_passes_changes_no_row(weather: Weather, remote: str, log: Log, wanted: list[Batch]) -> None:
    recipe, store = recipe_of(remote), f"{remote}-store-{weather.seed}"
    with ThreadPoolExecutor(len(DAYS)) as pool:
        partitions = list(pool.map(lambda day: prepare_day(recipe, day, store), DAYS))
    for day, partition in zip(DAYS, partitions, strict=True):
        check_same(log, day, partition)
        assert check_whole(store, day, log.rows[day]) == [partition]
    window = assemble_window(partitions, store, has_heldout=False)
    found = batches(window, recipe)
    assert len(found) == len(wanted)
    assert all(map(same, found, wanted))
    assert weather.num_injected > 0
    assert set(weather.injected) <= set(PASSING)


@pytest.mark.parametrize("weather", [{"seed": seed} for seed in (11, 12)], indirect=True, ids=["11", "12"])
def test_of_two_who_race_through_it_one_publishes(weather: Weather, remote: str, log: Log) -> None:
    recipe, store, day = recipe_of(remote), f"{remote}-race-{weather.seed}", DAYS[0]
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: prepare_day(recipe, day, store), range(4)))
    assert len(paths) == 1
    assert check_whole(store, day, log.rows[day]) == [*paths]


LASTING = [
    {"seed": seed, "kinds": (kind,), "rate": rate, "max_in_a_row": 10_000}
    for kind in ("401", "403", "404", "429", "503", "reset", "truncated")
    for seed, rate in ((21, 1.0), (22, 0.6))
]


@pytest.mark.parametrize("weather", LASTING, indirect=True, ids=lambda kind: f"{kind['kinds'][0]}-{kind['rate']}")
def test_what_lasts_is_one_line_and_publishes_nothing_or_all(
    weather: Weather, remote: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal at once, silence within the budget; with luck a day gets through."""
    monkeypatch.setenv("THAWLINE_STORAGE_RETRY_S", "2")
    recipe, store, day = recipe_of(remote), f"{remote}-{weather.kinds[0]}-{weather.rate}", DAYS[0]
    outcome = failure(recipe, day, store)
    if outcome is not None:
        check_told(outcome)
    weather.rate = 0.0
    monkeypatch.setenv("THAWLINE_STORAGE_RETRY_S", "60")
    if outcome is None:
        assert len(check_whole(store, day, log.rows[day])) == 1
    else:
        check_whole(store, day, log.rows[day])
    check_same(log, day, prepare_day(recipe, day, store))


def failure(recipe: Recipe, day: date, store: str) -> Exception | None:
    try:
        prepare_day(recipe, day, store)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(
    "weather", [{"seed": 31, "kinds": ("401",), "rate": 1.0, "max_in_a_row": 99}], indirect=True, ids=["401"]
)
def test_credentials_that_expire_half_way_are_one_line(weather: Weather, remote: str) -> None:
    """The log can still be listed; its files cannot be read any more."""
    weather.only = "part-00002"
    recipe, store = recipe_of(remote), f"{remote}-expired"
    told = failure(recipe, DAYS[0], store)
    check_told(told)
    assert "part-00002" in str(told)
    assert weather.num_injected > 0
    check_nothing(store, DAYS[0])
