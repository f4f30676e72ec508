"""What a person sees of a bucket that does not do: one line and an exit code, within seconds."""

from pathlib import Path

import pytest

from pipelines.recipes import show_recipe
from tests import gcs
from tests.conftest import Thawline
from tests.faults import ledger
from tests.faults.conftest import recipe_of
from tests.faults.proxy import Weather, proxied

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("401", 2, "log in anew"),
        ("403", 2, "let this account read and write there"),
        ("404", 2, "name a bucket and an object that exist"),
        ("503", 1, "try again later"),
        ("hang", 1, "try again later"),
    ],
)
def test_a_bucket_that_does_not_do_ends_a_command_with_one_line(
    thawline: Thawline,
    gcs_server: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    code: int,
    words: str,
) -> None:
    bucket = gcs.make_bucket(gcs_server, f"commands-{kind}")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(show_recipe(recipe_of(f"{bucket}/log")))
    with proxied(gcs_server, Weather(seed=0, kinds=(kind,), rate=1.0, max_in_a_row=10_000, hang_s=60.0)) as storm:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", storm.url)
        done = thawline("data", "check", "--recipe", recipe)
        injected = storm.injected
    ledger.injected.update(injected)
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(("thawline: error: ", "thawline: failed: ")), line
    assert f"{bucket}/log: cannot be read" in line
    assert words in line
    assert injected.total() > 0
