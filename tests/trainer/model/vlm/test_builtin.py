from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.trainer import tiny
from trainer.batches.batch import Media
from trainer.batches.columns import Columns
from trainer.model.vlm.builtin import BuiltinEncoder

RECIPE = tiny.recipe(tiny.BUILTIN_VLM)


def media(pins: int = 12) -> Media:
    columns = Columns.of_table(tiny.table_with_media(), RECIPE)
    assert columns.media is not None
    _, first = np.unique(columns.media.pin_of_row, return_index=True)
    return columns.media.gather(first[:pins])


def encoder(num_layers: int = 1) -> BuiltinEncoder:
    torch.manual_seed(0)
    return BuiltinEncoder(replace(RECIPE.vlm, num_layers=num_layers))


@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_a_pin_is_encoded_alike_in_any_company(num_layers: int) -> None:
    """Shorter titles are padded in company, and not alone."""
    module, whole = encoder(num_layers), media()
    assert len(set(whole.num_tokens_M.tolist())) > 1
    with torch.no_grad():
        together = module(whole)
        assert together.shape == (12, module.output_size)
        for pin in range(12):
            one = whole.select([pin])
            one = replace(one, tokens_MT=one.tokens_MT[:, : int(one.num_tokens_M)])
            torch.testing.assert_close(module(one), together[pin : pin + 1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("part", ["images_MSSC", "tokens_MT"])
def test_images_and_words_are_read(part: str) -> None:
    module, whole = encoder(), media()
    other = replace(whole, **{part: (getattr(whole, part) + 1) % 16})
    assert not torch.isclose(module(whole), module(other)).all(dim=1).any()


def test_patches_and_words_are_read_in_their_places() -> None:
    module = encoder()
    whole = media().select([pin for pin, count in enumerate(media().num_tokens_M.tolist()) if count == 3])
    turned = replace(whole, images_MSSC=whole.images_MSSC.flip(1))
    assert not torch.allclose(module(whole), module(turned), atol=1e-4)
    turned = replace(whole, tokens_MT=whole.tokens_MT.flip(1))
    assert not torch.allclose(module(whole), module(turned), atol=1e-4)


def test_a_pin_without_words_is_finite_and_so_are_gradients() -> None:
    module, whole = encoder(), media(3)
    silent = replace(
        whole, tokens_MT=torch.zeros(3, 1, dtype=torch.int64), num_tokens_M=torch.zeros(3, dtype=torch.int64)
    )
    torch.autograd.backward(module(silent).square().sum())
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())


def test_no_pins_give_no_rows() -> None:
    module = encoder()
    none = module(media().select([]))
    assert none.shape == (0, module.output_size)
    torch.autograd.backward(none.sum())
    assert all(parameter.grad is not None for parameter in module.parameters())
