import json
import re
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run

from trainer.recipe import Recipe
from trainer.registry.comparison_page import as_percent, verdict, write_page
from trainer.registry.comparison_plots import draw_all
from trainer.registry.comparisons import experiment_name, log_report, open_child, open_parent
from trainer.registry.tracking import connect

FACTS = {"date": "2017-11-21", "arms": "single_epoch,delayed"}


@pytest.fixture
def history(training_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((training_dir / "history.json").read_text())
    return content


def runs(recipe: Recipe, tracking_uri: str) -> list[Run]:
    client = connect(tracking_uri)
    experiment = client.get_experiment_by_name(experiment_name(recipe))
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def lift(point: float | None, low: float | None, high: float | None) -> dict[str, float | None]:
    return {"point": point, "low": low, "high": high}


def an_arm(arm: str, **changes: Any) -> dict[str, Any]:
    metrics = {name: lift(0.5, 0.4, None) for name in ("save_auc", "save_hit3", "save_log_loss", "save_calibration")}
    lifts = {"save_auc": lift(0.0023, 0.0007, 0.0039), "save_hit3": lift(-0.01, None, None)}
    return {
        "arm": arm,
        "window_days": 20,
        "metrics": metrics,
        "lift": lifts,
        "seeds": [{"seed": seed, "metrics": {}, "lift": {"save_auc": 0.002, "save_hit3": None}} for seed in (0, 1)],
        "epochs": 2,
        "thaw_epoch": 1.0,
        "train_s": 12.5,
        "num_row_gradients": 40000,
        "self_influence": 0.02,
        "refrozen_at": {},
        **changes,
    }


@pytest.fixture
def comparison() -> dict[str, Any]:
    slices = [("pin_impressions", "0"), ("pin_impressions", "1-7"), ("user_impressions", "64+"), ("pin_age", "new")]
    return {
        "recipe": "<b>feed</b>",
        "date": "2017-11-21",
        "baseline": "single_epoch",
        "seeds": [0, 1],
        "confidence": 0.95,
        "hit_k": 3,
        "heldout": {"day": "2017-11-20", "rows": 4000, "slates": 900, "users": 700, "saves": 500},
        "backbone": {"model": "thawline-feed-backbone", "version": "1"},
        "mlflow": {"experiment": "thawline-feed-comparisons", "run_id": "abc"},
        "windows": [{"days": 20, "first_day": "2017-10-31", "last_day": "2017-11-19", "rows": 70000}],
        "arms": [an_arm("single_epoch", lift={}), an_arm("delayed@1.5*2+guard", refrozen_at={"1": 1})],
        "slices": [
            {
                "dimension": dimension,
                "slice": name,
                "window_days": 20,
                "rows": 10,
                "saves": 2,
                "arm": "delayed@1.5*2+guard",
                "lift": {"save_auc": lift(None, None, None), "save_hit3": lift(-0.02, -0.03, -0.01)},
            }
            for dimension, name in slices
        ],
    }


def test_the_same_comparison_goes_on_in_its_run(recipe: Recipe, tracking_uri: str, history: dict[str, Any]) -> None:
    parent = open_parent(recipe, "key", FACTS, tracking_uri)
    assert open_parent(recipe, "other", FACTS, tracking_uri) != parent
    for _ in range(2):
        with open_child(recipe, "delayed", {"case": "a"}, parent, tracking_uri) as log:
            log(history)
    assert open_parent(recipe, "key", FACTS, tracking_uri) == parent
    (child,) = [run for run in runs(recipe, tracking_uri) if "case" in run.data.tags]
    assert child.data.tags["mlflow.parentRunId"] == parent
    assert child.data.metrics["canary/self_influence"] == 0.01
    assert child.data.metrics["train/num_row_gradients"] == 4000
    files = {artifact.path for artifact in connect(tracking_uri).list_artifacts(child.info.run_id)}
    assert files == {"history.json", "learning_curves.png"}


def test_a_failed_training_is_seen_and_made_anew(recipe: Recipe, tracking_uri: str, history: dict[str, Any]) -> None:
    parent = open_parent(recipe, "key", FACTS, tracking_uri)
    with (
        pytest.raises(RuntimeError, match="torchrun"),
        open_child(recipe, "delayed", {"case": "a"}, parent, tracking_uri),
    ):
        assert {run.info.status for run in runs(recipe, tracking_uri)} == {"RUNNING"}
        raise RuntimeError("torchrun failed")
    assert [run.info.status for run in runs(recipe, tracking_uri)] == ["FAILED", "FAILED"]
    open_parent(recipe, "key", FACTS, tracking_uri)
    with open_child(recipe, "delayed", {"case": "a"}, parent, tracking_uri) as log:
        log(history)
    assert sorted(run.info.status for run in runs(recipe, tracking_uri)) == ["FINISHED", "RUNNING"]


def test_a_report_ends_the_run(recipe: Recipe, tracking_uri: str, comparison: dict[str, Any], tmp_path: Path) -> None:
    parent = open_parent(recipe, "key", FACTS, tracking_uri)
    (tmp_path / "report.html").write_text("page")
    log_report(comparison, tmp_path, parent, tracking_uri)
    run = connect(tracking_uri).get_run(parent)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["lift/delayed-at1.5-x2-guard/20d/save_auc_low"] == 0.0007
    assert "lift/delayed-at1.5-x2-guard/20d/save_hit3_low" not in run.data.metrics


def test_the_page_tells_all_in_one_file(comparison: dict[str, Any], history: dict[str, Any], tmp_path: Path) -> None:
    histories = [(arm["arm"], 20, 0, {**history, "refrozen_at": 1}) for arm in comparison["arms"]]
    figures = draw_all(comparison, histories, tmp_path)
    write_page(comparison, figures, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<b>feed" not in page and "&lt;b&gt;feed" in page
    assert not re.search(r"<script|https?://|<link|@import", page)
    assert page.count("<img alt=") == page.count("data:image/png;base64,") == 3
    assert "AUC +0.23% [+0.07, +0.39]; its seeds from +0.20% to +0.20%" in page and "seed 1: 1" in page
    assert [path.stat().st_size > 5000 for path in figures.values()] == [True] * 3


@pytest.mark.parametrize(
    ("interval", "text", "said"),
    [
        (lift(0.0023, 0.0007, 0.0039), "+0.23% [+0.07, +0.39]", "better"),
        (lift(-0.02, -0.03, -0.01), "-2.00% [-3.00, -1.00]", "worse"),
        (lift(0.0, -0.01, 0.01), "+0.00% [-1.00, +1.00]", "not told apart"),
        (lift(0.0, 0.0, 0.0), "+0.00% [+0.00, +0.00]", "not told apart"),
        (lift(None, None, None), "n/a [n/a, n/a]", "not told apart"),
    ],
)
def test_an_interval_is_told(interval: dict[str, float | None], text: str, said: str) -> None:
    assert (as_percent(interval), verdict(interval)) == (text, said)
