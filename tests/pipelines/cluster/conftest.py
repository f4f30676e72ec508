from collections.abc import Iterator

import pytest

from pipelines.cluster.client import Client, Server
from pipelines.recipes import synthetic
from tests.pipelines.cluster.server import KubeflowPipelines, serving
from trainer.recipe import Recipe


@pytest.fixture
def server() -> Iterator[KubeflowPipelines]:
    """Kubeflow Pipelines, with nothing in it."""
    with serving(KubeflowPipelines()) as state:
        yield state


@pytest.fixture
def client(server: KubeflowPipelines) -> Client:
    """A client of it that tries three times, at once."""
    return Client(Server(endpoint=server.endpoint, waits_s=(0.0, 0.0)))


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    """A recipe that names its images by their digests."""
    digest = "sha256:" + "0" * 64
    images = {"cluster.data_image": f"mirror/data@{digest}", "cluster.trainer_image": f"mirror/trainer@{digest}"}
    return synthetic().override(images)
