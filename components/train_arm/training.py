"""Training one case and scoring the held-out rows with it."""

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa

from components.comparison import Case
from components.heldout import read_rows
from components.run import Run
from trainer.launch import launch_training
from trainer.recipe import Recipe
from trainer.registry.backbones import checksum, fetch_backbone
from trainer.registry.comparisons import open_child
from trainer.serving import Scorer
from trainer.windows.manifest import Partition, assemble_window, load_window
from trainer.windows.storage import folder_aside, local_path, write_json, write_parquet

_KEYS = ("request_id", "user_id", "pin_id")


def train_case(run: Run, case: Case, window: str, backbone: str, tracking_uri: str, parent: str) -> str:
    """Trains and scores a case, unless its folder is there already, and logs it under the parent run.

    Args:
        run: Recipe and date.
        case: What to train.
        window: Path of the longest window's manifest.
        backbone: Version of the backbone.
        tracking_uri: Where MLflow keeps runs and models.
        parent: ID of the comparison's MLflow run.

    Returns:
        The case's folder, ``<store>/cases/<key>``.

    Raises:
        InputError: The backbone does not fit the recipe, or the held-out day cannot be scored.
    """
    recipe, window = case.recipe_of(run.recipe), _newest_days(window, case.window_days, run.store)
    with TemporaryDirectory() as scratch:
        start = fetch_backbone(recipe, backbone, tracking_uri, scratch)
        key = _key(recipe, window, start)
        target = local_path(run.store) / "cases" / key
        with open_child(recipe, case.name, {"case": key, **_texts(case)}, parent, tracking_uri) as log:
            if not target.is_dir():
                launch_training(recipe, window, start, f"{scratch}/training")
                _publish(case, recipe, window, Path(scratch) / "training", target)
            log(json.loads((target / "history.json").read_text()))
    return str(target)


def _newest_days(window: str, num_days: int, store: str) -> str:
    """Path of the manifest of the window's last days, with its held-out day."""
    whole = load_window(window)
    assert whole.heldout is not None, "a comparison's window is assembled with one"
    days = (*whole.days[-num_days:], whole.heldout)
    return assemble_window([day.path for day in days], store, has_heldout=True)


def _key(recipe: Recipe, window: str, backbone_dir: str) -> str:
    parts = [recipe.digest, load_window(window).digest, checksum(Path(backbone_dir))]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _publish(case: Case, recipe: Recipe, window: str, training: Path, target: Path) -> None:
    heldout = load_window(window).heldout
    assert heldout is not None
    predictions = _predict(training / "model", heldout)
    with folder_aside(target) as aside:
        write_json(aside / "case.json", {**asdict(case), "window": window, "recipe": json.loads(recipe.to_json())})
        shutil.copy(training / "history.json", aside)
        write_parquet(aside / "predictions.parquet", pa.Table.from_pandas(predictions, preserve_index=False))


def _predict(model_dir: Path, heldout: Partition) -> pd.DataFrame:
    scorer = Scorer.load(model_dir)
    rows = read_rows(heldout, [*dict.fromkeys([*_KEYS, *scorer.columns]), "save"])
    return rows[[*_KEYS, "save"]].assign(score=scorer.predict(rows)["save"])


def _texts(case: Case) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(case).items()}
