"""Devices. What lies in this folder needs torch and pytest and nothing else, as `make test-gpu` promises."""

import pytest
import torch


@pytest.fixture(scope="session")
def gpu() -> torch.device:
    """The GPU; without one a test fails, for who asks for it wants to know."""
    if not torch.cuda.is_available():
        pytest.fail("needs an NVIDIA GPU, and torch sees none", pytrace=False)
    return torch.device("cuda")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device in turn: CPU in `make test`, CUDA in `make test-gpu`."""
    if request.param == "cpu":
        return torch.device("cpu")
    found: torch.device = request.getfixturevalue("gpu")
    return found
