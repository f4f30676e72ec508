"""Days in a bucket, prepared and read through a proxy that breaks a third of all requests."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import pytest

from tests import gcs
from tests.faults import ledger, work
from tests.faults.checks import check_nothing, check_same, check_told, check_whole
from tests.faults.conftest import DAYS, Log, recipe_of
from tests.faults.proxy import PASSING, Storm, Weather, proxied
from trainer.recipe import Recipe
from trainer.storage.uris import join
from trainer.windows.manifest import assemble_window
from trainer.windows.preparation import prepare_day

pytestmark = pytest.mark.faults

SEEDS = tuple(range(1, 9))


@pytest.fixture(scope="session")
def remote(gcs_server: str, log: Log) -> str:
    """The log in a bucket."""
    bucket = gcs.make_bucket(gcs_server, "faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", gcs_server)
        gcs.upload(Path(log.uri), join(bucket, "log"))
    return join(bucket, "log")


@pytest.fixture
def storm(
    request: pytest.FixtureRequest, gcs_server: str, monkeypatch: pytest.MonkeyPatch, remote: str
) -> Iterator[Storm]:
    """The weather of the test's parameters; all of Google's clients go through it."""
    with proxied(gcs_server, Weather(**request.param)) as storm:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", storm.url)
        monkeypatch.setenv("THAWLINE_STORAGE_RETRY_S", "60")
        yield storm
        ledger.injected.update(storm.injected)
        ledger.seeds.append(storm.weather.seed)


@pytest.fixture(scope="session")
def wanted(log: Log, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The window without faults."""
    store = str(tmp_path_factory.mktemp("wanted"))
    return assemble_window([prepare_day(log.recipe, day, store) for day in DAYS], store, has_heldout=False)


def test_whatever_passes_changes_no_row_and_no_batch(gcs_server: str, remote: str, wanted: str) -> None:
    """Each seed has a proxy and a process of its own; all wait at the same time."""
    with ExitStack() as stack:
        storms = [stack.enter_context(proxied(gcs_server, Weather(seed=seed))) for seed in SEEDS]
        calls = [(storm.url, 120.0, remote, f"{remote}-store-{storm.weather.seed}", wanted) for storm in storms]
        found = work.outcomes(work.prepare_and_read, calls)
        for storm in storms:
            ledger.injected.update(storm.injected)
            ledger.seeds.append(storm.weather.seed)
            assert storm.injected.keys() <= set(PASSING)
    assert found == [[]] * len(SEEDS)


@pytest.mark.parametrize("storm", [{"seed": 11}], indirect=True, ids=["11"])
def test_of_two_who_race_through_it_one_publishes(storm: Storm, remote: str, log: Log) -> None:
    recipe, store, day = recipe_of(remote), f"{remote}-race-{storm.weather.seed}", DAYS[0]
    with ThreadPoolExecutor(3) as pool:
        paths = set(pool.map(lambda _: prepare_day(recipe, day, store), range(3)))
    assert len(paths) == 1
    assert check_whole(store, day, log.rows[day]) == [*paths]


LASTING = [
    {"seed": seed, "kinds": (kind,), "rate": rate, "max_in_a_row": 10_000}
    for kind in ("401", "403", "404", "429", "503", "reset", "truncated")
    for seed, rate in ((21, 1.0), (22, 0.6))
]


@pytest.mark.parametrize("storm", LASTING, indirect=True, ids=lambda kind: f"{kind['kinds'][0]}-{kind['rate']}")
def test_what_lasts_is_one_line_and_publishes_nothing_or_all(
    storm: Storm, remote: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal at once, silence within the budget; with luck a day gets through."""
    monkeypatch.setenv("THAWLINE_STORAGE_RETRY_S", "2")
    recipe, store, day = recipe_of(remote), f"{remote}-{storm.weather.kinds[0]}-{storm.weather.rate}", DAYS[0]
    outcome = failure(recipe, day, store)
    if outcome is not None:
        check_told(outcome)
    storm.change(rate=0.0)
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
    "storm", [{"seed": 31, "kinds": ("401",), "rate": 1.0, "max_in_a_row": 99}], indirect=True, ids=["401"]
)
def test_credentials_that_expire_half_way_are_one_line(storm: Storm, remote: str) -> None:
    """The log can still be listed; its files cannot be read any more."""
    storm.change(only="part-00002")
    recipe, store = recipe_of(remote), f"{remote}-expired"
    told = failure(recipe, DAYS[0], store)
    check_told(told)
    assert "part-00002" in str(told)
    assert storm.injected.total() > 0
    check_nothing(store, DAYS[0])
