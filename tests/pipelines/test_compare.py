"""Arms side by side, from the command to MLflow: once, and the same again."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from tests.conftest import Thawline
from tests.pipelines.test_retrain import SETTINGS
from trainer.registry.tracking import connect

pytestmark = pytest.mark.xdist_group("the comparison's story")

COMPARE = ("compare", "--recipe", "synthetic", "--date", "2024-01-09")


@dataclass(frozen=True)
class Story:
    """One comparison and the same again, over one store."""

    store: Path
    uri: str
    report: Path
    content: dict[str, Any]
    stdout: str
    told: str
    again: dict[str, Any]


@pytest.fixture(scope="module")
def story(thawline: Thawline, tiny_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    store = tmp_path_factory.mktemp("store")
    settings = [f"--set={setting}" for setting in (f"logs.uri={tiny_log}", *SETTINGS, "guard.max_self_influence=1e-9")]
    arms = ["--arms", "cotrain+guard", "--seeds", "1", "--window-days", "3,2"]
    first = thawline(*COMPARE, *arms, "--store", store, *settings)
    log = "".join(path.read_text() for path in store.glob("comparisons/*/run.log"))
    assert first.returncode == 0, first.stderr + log
    name, _, path = first.stdout.splitlines()[-1].partition(": ")
    assert name == "report"
    content = json.loads((Path(path).parent / "comparison.json").read_text())
    again = thawline(*COMPARE, *arms, "--store", store, *settings, "--json")
    assert again.returncode == 0, again.stderr
    return Story(
        store=store,
        uri=f"sqlite:///{store}/mlflow.db",
        report=Path(path),
        content=content,
        stdout=first.stdout,
        told=first.stderr,
        again=json.loads(again.stdout),
    )


def test_every_arm_is_judged_on_every_window(story: Story) -> None:
    content = story.content
    assert [(window["days"], window["rows"]) for window in content["windows"]] == [(2, 1200), (3, 1800)]
    assert {window["last_day"] for window in content["windows"]} == {"2024-01-07"}
    assert content["heldout"]["day"] == "2024-01-08" and content["heldout"]["rows"] == 600
    named = [(entry["arm"], entry["window_days"]) for entry in content["arms"]]
    assert named == [(arm, days) for days in (2, 3) for arm in ("single_epoch", "cotrain+guard")]
    for entry in content["arms"]:
        assert set(entry["metrics"]) == {"save_auc", "save_hit3", "save_log_loss", "save_calibration"}
        assert set(entry["lift"]) == (set() if entry["arm"] == "single_epoch" else {"save_auc", "save_hit3"})
        assert [seed["seed"] for seed in entry["seeds"]] == [0]
        assert entry["num_row_gradients"] > 0 and entry["train_s"] > 0
        # So few rows make the canary's reading noise, but the guard must have heeded it.
        is_refrozen = entry["arm"] == "cotrain+guard" and entry["self_influence"] > 1e-9
        assert entry["refrozen_at"] == ({"0": 1} if is_refrozen else {})


def test_slices_share_the_held_out_rows_among_them(story: Story) -> None:
    for dimension in ("pin_impressions", "user_impressions", "pin_age"):
        for days in (2, 3):
            of_dimension = [
                entry
                for entry in story.content["slices"]
                if (entry["dimension"], entry["window_days"]) == (dimension, days)
            ]
            assert sum(entry["rows"] for entry in of_dimension) == 600
            assert sum(entry["saves"] for entry in of_dimension) == story.content["heldout"]["saves"]


def test_the_page_needs_nothing_else(story: Story) -> None:
    page = story.report.read_text()
    assert page.count("data:image/png;base64,") == 3 == len(list(story.report.parent.glob("*.png")))
    assert not re.search(r"<script|https?://|<link|@import", page)
    assert all('alt="' in image and 'alt=""' not in image for image in re.findall(r"<img[^>]{0,200}", page))
    assert "cotrain+guard" in page and "do not cover other days" in page


def test_a_person_sees_a_table_and_the_cases_as_they_end(story: Story) -> None:
    assert re.search(r"cotrain\+guard +3 +0\.\d{4} +[+-]\d\.\d\d% \[", story.stdout)
    assert "4 cases: 2 arms, 1 seed, 2 window lengths" in story.told
    assert any(line.strip().startswith("train_arm (4 of 4 cases)") for line in story.told.splitlines())
    assert not [line for line in story.told.splitlines() if "INFO" in line or "Warning" in line]


def test_mlflow_holds_a_parent_with_its_children_and_the_report(story: Story) -> None:
    client = connect(story.uri)
    parent = client.get_run(story.content["mlflow"]["run_id"])
    assert parent.info.status == "FINISHED"
    assert "lift/cotrain-guard/3d/save_auc" in parent.data.metrics
    assert {artifact.path for artifact in client.list_artifacts(parent.info.run_id, "report")} == {
        f"report/{name}" for name in ("report.html", "comparison.json", "forest.png", "curves.png", "slices.png")
    }
    # The comparison was made twice, and nothing is there twice.
    runs = client.search_runs([parent.info.experiment_id])
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(runs) == 5 and len(children) == 4
    for child in children:
        assert child.info.status == "FINISHED"
        assert child.data.params["thaw.arm"] == child.data.tags["arm"].removesuffix("+guard")
        assert child.data.params["window.num_days"] == child.data.tags["window_days"]
        assert {"heldout/save_auc", "canary/self_influence", "train/num_row_gradients"} < set(child.data.metrics)


def test_the_same_again_trains_nothing(story: Story) -> None:
    assert story.again == {**story.content, "report": str(story.report)}
    assert len(list((story.store / "cases").iterdir())) == 4
    assert not list(story.store.rglob("*.aside"))
    assert not list((story.store / "cases").rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--arms", "nope"), "arm 'nope': unknown"),
        (("--arms", "delayed,,cotrain"), "--arms 'delayed,,cotrain': an entry is empty"),
        (("--arms", "delayed,delayed"), "'delayed' is there twice"),
        (("--arms", "delayed,delayed*2"), "train alike"),
        (("--arms", "single_epoch"), "nothing to judge against single_epoch"),
        (("--arms", "delayed@7"), "beyond the last of 2 epochs"),
        (("--arms", "cotrain@1.5"), "thaw_point"),
        (("--seeds", "0"), "--seeds 0"),
        (("--seeds", "many"), "--seeds 'many': no whole number"),
        (("--window-days", "10,0"), "--window-days 0"),
        (("--window-days", "10,10"), "10 is there twice"),
        (("--window-days", "ten"), "--window-days 'ten'"),
        (("--date", "2024-02-30"), "YYYY-MM-DD"),
        (("--set", "nope=1"), "no field 'nope'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistyped_comparison_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    assert main([*COMPARE, "--store", str(tmp_path), *arguments]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("thawline: error: ")
    assert told in line
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


def test_a_log_without_the_days_is_told(thawline: Thawline, tiny_log: Path, tmp_path: Path) -> None:
    done = thawline(*COMPARE, "--set", f"logs.uri={tiny_log}", "--window-days", "2,30", "--store", tmp_path)
    assert done.returncode == 2, done.stderr
    assert "no logs for" in done.stderr.splitlines()[-1]
