"""The daily DAG as production runs it: first day, the same day again, the next day."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Thawline

# One worker tells the story once.
pytestmark = pytest.mark.xdist_group("the daily story")

SETTINGS = (
    "window.num_days=3",
    "backbone.num_days=3",
    "tables.num_user_rows=64",
    "tables.num_pin_rows=256",
    "tables.dim=8",
    "model.history_length=5",
    "model.hidden_sizes=[8]",
    "evaluation.num_bootstrap=50",
    "gate.min_auc_low=0.01",
    "gate.calibration_range=[0.01, 100]",
)

SERVE = """
import json, sys
import mlflow, pyarrow.parquet
mlflow.set_tracking_uri(sys.argv[1])
frame = pyarrow.parquet.read_table(sys.argv[2]).to_pandas().head(5)
ranker = mlflow.pyfunc.load_model("models:/thawline-synthetic@champion")
print(json.dumps(ranker.predict(frame[list(ranker.metadata.get_input_schema().input_names())]).to_dict("list")))
"""


@dataclass(frozen=True)
class Story:
    """Three retrains over one store, in this order."""

    store: Path
    first: dict[str, Any]
    again: dict[str, Any]
    following: dict[str, Any]
    prepared: list[set[str]]
    steps: list[set[str]]
    told: str


def on(log: Path, store: Path) -> list[str]:
    """The options of every run here."""
    settings = [f"--set={setting}" for setting in (f"logs.uri={log}", *SETTINGS)]
    return ["--recipe", "synthetic", "--store", str(store), *settings]


@pytest.fixture(scope="module")
def story(thawline: Thawline, tiny_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    store = tmp_path_factory.mktemp("store")
    summaries, prepared, steps, told = [], [], [], []
    for date in ("2024-01-09", "2024-01-09", "2024-01-10"):
        done = thawline("retrain", "--date", date, *on(tiny_log, store))
        assert done.returncode == 0, done.stderr + "".join(p.read_text() for p in store.glob("runs/*/run.log"))
        name, _, path = done.stdout.splitlines()[-1].partition(": ")
        assert name == "summary"
        assert done.stdout.startswith("\nthawline-synthetic version ")
        summaries.append(json.loads(Path(path).read_text()))
        prepared.append({str(path.relative_to(store)) for path in store.glob("partitions/*/*")})
        steps.append({path.stem for path in (Path(path).parent / "steps").iterdir()})
        told.append(done.stderr)
    first, again, following = summaries
    return Story(
        store=store, first=first, again=again, following=following, prepared=prepared, steps=steps, told=told[0]
    )


def test_the_first_day_makes_a_backbone_and_a_champion(story: Story) -> None:
    assert {"check_window", "plan_window-backbone", "pretrain", "register_backbone"} < story.steps[0]
    assert {"train", "evaluate", "register"} < story.steps[0]
    assert story.first["version"] == "1"
    assert story.first["decision"] == "promote"
    assert story.first["lift"] == {}
    window = story.first["window"]
    assert (window["days"], window["first_day"], window["last_day"]) == (3, "2024-01-05", "2024-01-07")
    assert window["heldout_day"] == "2024-01-08"
    assert window["rows"] == 1800
    assert {"prepare_day", "train", "evaluate"} < set(story.first["duration_s"])
    assert story.first["peak_rss_mib"] > 50
    assert story.first["quality"]["verdict"] in ("ok", "warn")
    assert "Verdict: " in Path(story.first["quality"]["page"]).read_text()


def test_the_same_day_again_does_nothing_twice(story: Story) -> None:
    assert story.again == story.first
    assert story.prepared[1] == story.prepared[0]
    assert not {"pretrain", "train", "evaluate", "register"} & story.steps[1]


def test_each_run_says_how_it_ended(story: Story) -> None:
    ends = [json.loads(path.read_text()) for path in sorted(story.store.glob("runs/*/end.json"))]
    assert [(end["date"], end["status"], end["failed_step"]) for end in ends] == [
        ("2024-01-09", "succeeded", ""),
        ("2024-01-10", "succeeded", ""),
    ]
    assert not list(story.store.glob("runs/*/unfinished/*"))


def test_the_next_day_prepares_one_day_and_reuses_the_backbone(story: Story) -> None:
    (new,) = story.prepared[2] - story.prepared[1]
    assert new.startswith("partitions/dt=2024-01-09/")
    assert not {"pretrain", "plan_window-backbone"} & story.steps[2]


def test_the_next_day_is_judged_against_the_champion(story: Story) -> None:
    assert story.following["version"] == "2"
    assert set(story.following["lift"]) >= {"save_hit3", "save_auc"}
    assert all(set(interval) == {"point", "low", "high"} for interval in story.following["lift"].values())
    assert story.following["champion_metrics"] is not None


def test_a_person_sees_the_steps_and_not_the_noise(story: Story) -> None:
    lines = story.told.splitlines()
    assert any(line.strip().startswith("prepare_day (4 days)") for line in lines)
    assert any(line.strip().startswith("train ") and line.endswith(" s") for line in lines)
    assert not [line for line in lines if "INFO" in line or "Executing task" in line or "Warning" in line]


def test_the_champion_serves_in_a_new_process(story: Story) -> None:
    heldout = next(story.store.glob("partitions/dt=2024-01-08/*/part-00000-*.parquet"))
    command = [sys.executable, "-c", SERVE, f"sqlite:///{story.store}/mlflow.db", str(heldout)]
    done = subprocess.run(command, cwd=story.store, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    predicted = json.loads(done.stdout.splitlines()[-1])
    assert set(predicted) == {"save", "click", "hide"}
    assert all(len(values) == 5 and all(0 < value < 1 for value in values) for values in predicted.values())


def test_a_backbone_of_other_dimensions_is_refused_whole(thawline: Thawline, tiny_log: Path, story: Story) -> None:
    done = thawline("retrain", "--date", "2024-01-09", *on(tiny_log, story.store), "--set=tables.dim=16")
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert [line for line in lines if line.startswith("thawline: error: ")] == lines[-1:]
    assert "dim" in lines[-1]
    assert "summary" not in done.stdout


def test_an_odd_day_stops_the_run_before_it_trains(thawline: Thawline, tiny_log: Path, story: Story) -> None:
    strict = [f"--set=quality.{key}" for key in ("on_breach=stop", "max_mean_shift=0.000001", "max_z=0.000001")]
    done = thawline("retrain", "--date", "2024-01-10", *on(tiny_log, story.store), *strict)
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert [line for line in lines if line.startswith("thawline: error: ")] == lines[-1:]
    told = re.fullmatch(
        r"thawline: error: data of 2024-01-09: .* see (\S+quality\.html), then mend the day.*", lines[-1]
    )
    assert told, lines[-1]
    assert "Verdict: stop." in Path(told[1]).read_text()
    steps = {path.stem for path in (Path(told[1]).parent / "steps").iterdir()}
    assert "assemble_window-window" in steps
    assert not {"check_window", "find_backbone", "train"} & steps


def test_pretraining_alone_makes_a_fresher_backbone(thawline: Thawline, tiny_log: Path, story: Story) -> None:
    done = thawline("pretrain", "--date", "2024-01-10", *on(tiny_log, story.store), "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["model"], record["version"]) == ("thawline-synthetic-backbone", "2")
    assert record["window"] == {"days": 3, "first_day": "2024-01-03", "last_day": "2024-01-05", "rows": 1800}
