"""Hugging Face encoders against transformers' own use of the same folder."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

from tests.trainer import tiny
from tests.trainer.model.vlm import tiny_clip
from trainer.batches.batch import Media
from trainer.batches.columns import Columns
from trainer.errors import InputError
from trainer.model.vlm.folder import encoder_folder
from trainer.model.vlm.huggingface import HuggingFaceEncoder, PretrainedTokenizer
from trainer.model.vlm.tower import VlmTower
from trainer.recipe import Recipe

WRITERS: dict[str, Callable[[Path], Path]] = {"clip": tiny_clip.write_clip, "siglip": tiny_clip.write_siglip}


@pytest.fixture(scope="module", params=sorted(WRITERS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WRITERS[request.param](tmp_path_factory.mktemp("encoder") / request.param)


def recipe_of(folder: Path, image_pixels: int = tiny_clip.IMAGE_PIXELS) -> Recipe:
    return tiny.recipe(
        {
            "vlm.encoder": "huggingface",
            "vlm.path": str(folder),
            "vlm.image_pixels": str(image_pixels),
            "vlm.patch_pixels": "1",
        }
    )


def media(recipe: Recipe, pins: int = 12) -> tuple[Media, list[str]]:
    """Media of some pins, and their titles."""
    table = tiny.table_with_media()
    columns = Columns.of_table(table, recipe)
    assert columns.media is not None
    _, first = np.unique(columns.media.pin_of_row, return_index=True)
    return columns.media.gather(first[:pins]), table["text"].take(first[:pins]).to_pylist()


def test_features_are_those_of_transformers(folder: Path) -> None:
    found, texts = media(recipe_of(folder))
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    padding = "max_length" if "siglip" in str(folder) else "longest"
    inputs = tokenizer(texts, padding=padding, max_length=tiny_clip.MAX_TOKENS, return_tensors="pt")
    pixels = found.images_MSSC.permute(0, 3, 1, 2) / 255
    pixels = (pixels - torch.tensor(tiny_clip.MEAN)[:, None, None]) / torch.tensor(tiny_clip.STD)[:, None, None]
    attention = {} if "siglip" in str(folder) else {"attention_mask": inputs["attention_mask"]}
    with torch.no_grad():
        image = model.get_image_features(pixel_values=pixels).pooler_output
        text = model.get_text_features(input_ids=inputs["input_ids"], **attention).pooler_output
        wanted = torch.cat([F.normalize(image, dim=-1), F.normalize(text, dim=-1)], dim=-1)
        encoder = HuggingFaceEncoder(folder, is_pretrained=True).eval()
        torch.testing.assert_close(encoder(found), wanted, atol=1e-5, rtol=1e-5)
    assert encoder.output_size == wanted.shape[1]
    assert wanted.std(dim=0).min() > 0


def test_images_of_another_size_are_scaled(folder: Path) -> None:
    encoder = HuggingFaceEncoder(folder, is_pretrained=True)
    small, large = (encoder(media(recipe_of(folder, pixels))[0]) for pixels in (4, 8))
    assert small.shape == large.shape
    assert F.cosine_similarity(small, large).min() > 0.9


def test_a_pin_is_encoded_alike_in_any_company(folder: Path) -> None:
    encoder = HuggingFaceEncoder(folder, is_pretrained=True).eval()
    whole, _ = media(recipe_of(folder))
    with torch.no_grad():
        together = encoder(whole)
        for pin in range(len(together)):
            one = whole.select([pin])
            one = replace(one, tokens_MT=one.tokens_MT[:, : int(one.num_tokens_M)])
            torch.testing.assert_close(encoder(one), together[pin : pin + 1], atol=1e-5, rtol=1e-5)
        assert encoder(whole.select([])).shape == (0, encoder.output_size)


def test_it_trains_and_freezes_as_the_built_in_one(folder: Path) -> None:
    recipe = recipe_of(folder)
    tower = VlmTower(recipe.vlm, dim=4, is_pretrained=True)
    torch.nn.init.normal_(tower.project.weight)
    whole, _ = media(recipe)
    torch.autograd.backward(tower(whole).square().sum())
    untrained = [
        name for name, parameter in tower.named_parameters() if parameter.requires_grad and parameter.grad is None
    ]
    assert not untrained
    trained = tower(whole).detach()
    tower.freeze(True)
    for pins in ([0, 1], [1, 2, 3], list(range(12))):
        torch.testing.assert_close(tower(whole.select(pins)), trained[pins], atol=1e-5, rtol=1e-5)


def test_no_pins_have_a_gradient_too(folder: Path) -> None:
    """Ranks average gradients, and one may have no slate in a step."""
    encoder = HuggingFaceEncoder(folder, is_pretrained=True)
    torch.autograd.backward(encoder(media(recipe_of(folder))[0].select([])).sum())
    gradients = [parameter.grad for parameter in encoder.parameters() if parameter.requires_grad]
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


def test_without_weights_it_is_built_to_be_loaded(folder: Path) -> None:
    trained = HuggingFaceEncoder(folder, is_pretrained=True)
    bare = HuggingFaceEncoder(folder, is_pretrained=False)
    whole, _ = media(recipe_of(folder))
    assert not torch.allclose(bare(whole), trained(whole))
    bare.load_state_dict(trained.state_dict())
    assert torch.equal(bare(whole), trained(whole))


def test_long_texts_are_cut(folder: Path) -> None:
    tokens, num_tokens = PretrainedTokenizer(folder)(["grand piano " * 20, "oak"])
    assert tokens.shape == (2, tiny_clip.MAX_TOKENS)
    assert num_tokens[0] == tiny_clip.MAX_TOKENS


def copy(folder: Path, out: Path, without: str) -> Path:
    shutil.copytree(folder, out)
    for file in out.glob(without):
        file.unlink()
    return out


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as found:
        VlmTower(recipe_of(folder).vlm, dim=4, is_pretrained=True)
    assert "\n" not in str(found.value)
    return str(found.value)


def test_pickled_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    pickled = copy(folder, tmp_path / "pickled", "*.safetensors")
    torch.save({}, pickled / "pytorch_model.bin")
    assert refusal(pickled).startswith(f"{pickled}: holds no *.safetensors; save the encoder with safe serialization")


def test_a_folder_that_is_no_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    assert "config.json is missing" in refusal(tmp_path / "nowhere")
    assert "no image_mean" in refusal(copy(folder, tmp_path / "unprocessed", "preprocessor_config.json"))
    broken = copy(folder, tmp_path / "broken", "config.json")
    (broken / "config.json").write_text("{}")
    assert "its encoder cannot be read" in refusal(broken)
    with pytest.raises(InputError, match="its tokenizer cannot be read"):
        PretrainedTokenizer(copy(folder, tmp_path / "mute", "token*"))
    with pytest.raises(InputError, match="s3:// is not supported here"):
        encoder_folder("s3://bucket/encoder")


def test_code_in_a_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    trap = copy(folder, tmp_path / "trap", "config.json")
    (trap / "config.json").write_text(
        '{"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModel": "mine.M"}}'
    )
    (trap / "mine.py").write_text("open(__file__ + '.ran', 'w')")
    assert "cannot be read" in refusal(trap)
    assert not list(trap.glob("*.ran"))
