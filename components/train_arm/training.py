"""One case of a comparison: trained unless it is there already, and logged."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from components.comparison import Case
from components.run import Run, records_folder
from trainer.recipe import Recipe
from trainer.registry.backbones import checksum, fetch_backbone
from trainer.registry.comparisons import open_child
from trainer.registry.windows import WINDOW_TAG
from trainer.windows.manifest import assemble_window, load_window


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
        target = records_folder(run.store) / "cases" / key
        tags = {"case": key, WINDOW_TAG: load_window(window).digest, **_texts(case)}
        with open_child(recipe, case.name, tags, parent, tracking_uri) as log:
            if not target.is_dir():
                # With it comes torch, which a case that is there already can do without.
                from components.launching import launcher_of
                from components.train_arm.scoring import train_and_score

                facts = {**asdict(case), "window": window, "recipe": json.loads(recipe.to_json())}
                launcher = launcher_of(replace(run, recipe=recipe), "train", case.name)
                train_and_score(recipe, window, start, launcher, facts, target)
            log(json.loads((target / "history.json").read_text()))
    return str(target)


def _newest_days(window: str, num_days: int, store: str) -> str:
    """Path of the manifest of the window's last days, with its held-out day."""
    whole = load_window(window)
    assert whole.heldout is not None, "a comparison's window is assembled with one"
    days = (*whole.days[-num_days:], whole.heldout)
    return assemble_window([path for day in days for path in day.paths], store, has_heldout=True)


def _key(recipe: Recipe, window: str, backbone_dir: str) -> str:
    parts = [recipe.digest, load_window(window).digest, checksum(Path(backbone_dir))]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _texts(case: Case) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(case).items()}
