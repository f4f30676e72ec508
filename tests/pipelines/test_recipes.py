from pathlib import Path

import pytest

from pipelines.options import parse_settings
from pipelines.recipes import RECIPES, find_recipe, show_recipe
from trainer.errors import InputError


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_found_by_its_own_name(name: str) -> None:
    assert find_recipe(name).name == name


@pytest.mark.parametrize("name", RECIPES)
def test_a_shown_recipe_is_a_recipe(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(show_recipe(find_recipe(name)))
    assert find_recipe(str(path)) == find_recipe(name)


@pytest.mark.parametrize(
    ("text", "told"),
    [("- 1\n", "holds no fields"), ("a: [\n", "cannot be read as YAML"), ("name: x\n", "logs: Field required")],
)
def test_a_file_that_is_no_recipe_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=told) as error:
        find_recipe(str(path))
    assert "\n" not in str(error.value)


def test_an_unknown_recipe_lists_the_known() -> None:
    with pytest.raises(InputError, match="complete_journey, synthetic"):
        find_recipe("nope")


def test_settings_keep_what_follows_the_first_equals_sign() -> None:
    assert parse_settings(["logs.uri=a=b", "x = 1"]) == {"logs.uri": "a=b", "x": "1"}
    with pytest.raises(InputError, match="--set KEY=VALUE"):
        parse_settings(["x"])
