from dataclasses import replace

import pytest
import torch

from tests.trainer.model.vlm.test_builtin import RECIPE, media
from trainer.model.vlm.tower import VlmTower


@pytest.fixture
def tower() -> VlmTower:
    torch.manual_seed(0)
    module = VlmTower(RECIPE.vlm, dim=4, is_pretrained=True)
    torch.nn.init.normal_(module.project.weight)  # zero at first, which would hide everything
    return module


def test_it_says_nothing_at_first() -> None:
    assert not VlmTower(RECIPE.vlm, dim=4, is_pretrained=True)(media()).any()


def test_every_row_gets_the_vector_of_its_pin(tower: VlmTower) -> None:
    whole = media(3)
    shared = replace(whole, pins_B=torch.tensor([2, 0, 2, 1]))
    assert torch.equal(tower(shared), tower(whole)[[2, 0, 2, 1]])


def test_frozen_embeddings_are_those_computed_anew(tower: VlmTower) -> None:
    whole = media()
    trained = tower(whole).detach()
    tower.freeze(True)
    for pins in ([0, 1, 2], [2, 3, 1], list(range(12)), [5]):
        torch.testing.assert_close(tower(whole.select(pins)), trained[pins], atol=1e-6, rtol=1e-5)
    assert 0 < tower.cache_bytes <= RECIPE.vlm.cache_mib * 2**20


def test_a_frozen_encoder_computes_each_pin_once(tower: VlmTower) -> None:
    seen: list[int] = []
    tower.encoder.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    tower.freeze(True)
    for pins in ([0, 1, 2], [2, 1, 0], [2, 3]):
        tower(media().select(pins))
    assert seen == [3, 1]


def test_a_frozen_encoder_has_no_gradient_and_its_projection_has(tower: VlmTower) -> None:
    tower.freeze(True)
    torch.autograd.backward(tower(media()).square().sum())
    assert all(parameter.grad is None for parameter in tower.encoder.parameters())
    assert all(parameter.grad is not None for parameter in tower.project.parameters())
    tower.freeze(False)
    torch.autograd.backward(tower(media()).square().sum())
    assert all(parameter.grad is not None for parameter in tower.encoder.parameters())


def test_a_frozen_encoder_stays_in_evaluation(tower: VlmTower) -> None:
    tower.train().freeze(True)
    assert not tower.encoder.training
    tower.train()
    assert not tower.encoder.training
    tower.freeze(False)
    assert tower.encoder.training


@pytest.mark.parametrize("change", ["step", "load", "thaw"])
def test_the_cache_forgets_when_the_encoder_changes(tower: VlmTower, change: str) -> None:
    whole = media()
    tower.freeze(True)
    before = tower(whole)
    if change == "load":
        tower.load_state_dict({name: values + 0.5 for name, values in tower.state_dict().items()})
    else:
        if change == "thaw":
            tower.freeze(False)
            assert tower.cache_bytes == 0
        with torch.no_grad():
            for parameter in tower.encoder.parameters():
                parameter.add_(0.5)
        tower.freeze(True)
    found = tower(whole)
    assert not torch.allclose(before, found)
    tower.freeze(False)
    torch.testing.assert_close(found, tower(whole), atol=1e-5, rtol=1e-5)
