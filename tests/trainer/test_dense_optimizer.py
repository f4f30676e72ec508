"""Groups of a small network under schedules of their own; what is frozen keeps every bit."""

import copy
from typing import Any

import torch
from torch import nn

from trainer.dense_optimizer import DenseOptimizer, Group
from trainer.recipe import GroupConfig
from trainer.thaw.schedule import GroupSchedule


class Network:
    """Two groups, the second with a schedule of a test's choice."""

    def __init__(self, **settings: Any) -> None:
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 1)
        self.told: list[bool] = []
        plain = GroupSchedule.of(GroupConfig(learning_rate=0.1), num_epochs=3)
        scheduled = GroupSchedule.of(GroupConfig(**{"learning_rate": 0.1, **settings}), num_epochs=3)
        self.optimizer = DenseOptimizer(
            [
                Group(parameters=list(self.first.parameters()), schedule=plain),
                Group(parameters=list(self.second.parameters()), schedule=scheduled, freeze=self.told.append),
            ]
        )

    def step(self, progress: float) -> None:
        self.optimizer.begin_step(progress)
        inputs = torch.arange(6.0).reshape(2, 3) + progress
        torch.autograd.backward((self.second(self.first(inputs).tanh()) - 1).square().sum())
        self.optimizer.step()

    def bits(self, module: nn.Module) -> list[torch.Tensor]:
        """Parameters of a group, and Adam's state of them."""
        return [values for number in self._numbers(module) for values in self._of(number)]

    def _numbers(self, module: nn.Module) -> list[int]:
        return [0, 1] if module is self.first else [2, 3]

    def _of(self, number: int) -> list[torch.Tensor]:
        parameter = [*self.first.parameters(), *self.second.parameters()][number]
        state = self.optimizer.state_dict()["state"].get(number, {})
        return [parameter.detach().clone(), *(copy.deepcopy(state[name]) for name in sorted(state))]


def same(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    return len(found) == len(wanted) and all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))


def test_one_group_is_adam() -> None:
    network, plain = Network(), Network()
    adam = torch.optim.Adam([*plain.first.parameters(), *plain.second.parameters()], lr=0.1, fused=True)
    for progress in (0.0, 0.5, 1.0):
        network.step(progress)
        adam.zero_grad()
        inputs = torch.arange(6.0).reshape(2, 3) + progress
        torch.autograd.backward((plain.second(plain.first(inputs).tanh()) - 1).square().sum())
        adam.step()
    assert torch.equal(network.first.weight, plain.first.weight)
    assert torch.equal(network.second.weight, plain.second.weight)


def test_a_frozen_group_keeps_every_bit_of_parameters_and_of_state() -> None:
    network = Network(thaw_point=1.0, freeze_point=2.0)
    before, first = network.bits(network.second), network.bits(network.first)
    network.step(0.0)
    network.step(0.5)
    assert same(network.bits(network.second), before)
    assert not same(network.bits(network.first), first), "the other group trains on"
    network.step(1.0)
    network.step(1.5)
    thawed = network.bits(network.second)
    assert len(thawed) > len(before), "Adam has a state for it now"
    assert not same(thawed, before)
    network.step(2.0)
    network.step(2.5)
    assert same(network.bits(network.second), thawed)


def test_a_group_is_told_of_its_phases_once() -> None:
    network = Network(thaw_point=1.0, freeze_point=2.0)
    for progress in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5):
        network.step(progress)
    assert network.told == [True, False, True]


def test_each_group_has_its_own_step_size() -> None:
    """Adam's first step moves every weight by the step size."""
    network = Network(learning_rate=0.02, warmup_epochs=0.5)
    first, second = network.first.weight.detach().clone(), network.second.weight.detach().clone()
    network.step(0.25)
    torch.testing.assert_close((network.first.weight - first).abs(), torch.full((3, 3), 0.1), rtol=1e-4, atol=0)
    torch.testing.assert_close((network.second.weight - second).abs(), torch.full((1, 3), 0.01), rtol=1e-4, atol=0)


def test_it_goes_on_from_its_state() -> None:
    whole, part = Network(thaw_point=1.0), Network(thaw_point=1.0)
    for progress in (0.0, 1.0):
        whole.step(progress)
    state = copy.deepcopy(whole.optimizer.state_dict())
    part.first.load_state_dict(whole.first.state_dict())
    part.second.load_state_dict(whole.second.state_dict())
    part.optimizer.load_state_dict(state)
    whole.step(1.5)
    part.step(1.5)
    for module in ("first", "second"):
        assert same(part.bits(getattr(part, module)), whole.bits(getattr(whole, module)))
    assert part.told == [False]
