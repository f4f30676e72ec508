"""The images as they were built: who runs, what is in them, where they write, and the same again."""

import json
import os
import re
import subprocess

import docker
import pytest

from components.images import DATA_IMAGE, TRAINER_IMAGE
from tests.conftest import REPOSITORY
from tests.containers.conftest import Held

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("images")]

LOCKS = {DATA_IMAGE: "data", TRAINER_IMAGE: "cpu"}
FROM_ANOTHER_USER = {"user": "54321:54321"}

INSTALLED = """
import json, re
from importlib.metadata import distributions
print(json.dumps({re.sub("[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in distributions()}))
"""
WRITABLE = """
import json, os
found = []
for folder, inner, _ in os.walk("/"):
    inner[:] = [name for name in inner if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
    if os.access(folder, os.W_OK):
        found.append(folder)
print(json.dumps([os.path.expanduser("~"), found]))
"""


@pytest.fixture(params=LOCKS)
def image(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_it_says_what_it_is(engine: docker.DockerClient, image: str) -> None:
    config = engine.images.get(image).attrs["Config"]
    assert config["User"] == "10001:10001"
    assert set(config["Volumes"]) == {"/tmp"}
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == image.partition(":")[0]
    assert labels["org.opencontainers.image.version"] == image.partition(":")[2]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.description"]
    assert re.fullmatch(r"unknown|[0-9a-f]{40}", labels["org.opencontainers.image.revision"])


def test_its_imports_are_healthy_for_any_user(engine: docker.DockerClient, held: Held, image: str) -> None:
    kind, *command = engine.images.get(image).attrs["Config"]["Healthcheck"]["Test"]
    assert kind == "CMD"
    code, said = held.run(image, *command, **FROM_ANOTHER_USER)
    assert (code, said) == (0, "")


def test_it_holds_its_lock_and_our_code_and_nothing_else(held: Held, image: str) -> None:
    code, said = held.run(image, "python3", "-c", INSTALLED)
    assert code == 0, said
    lock = (REPOSITORY / "requirements" / f"{LOCKS[image]}.txt").read_text()
    pinned = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock, re.MULTILINE))
    assert json.loads(said) == pinned | {"thawline": "0.1.0"}
    assert ("torch" in pinned) == (image == TRAINER_IMAGE)


def test_it_writes_only_where_it_says(held: Held, image: str) -> None:
    code, said = held.run(image, "python3", "-c", WRITABLE)
    assert code == 0, said
    home, writable = json.loads(said)
    assert home == "/tmp"
    assert writable == ["/tmp"]


def test_nothing_of_the_builder_stays(engine: docker.DockerClient, held: Held, image: str) -> None:
    looked_for = ["-name", "pip.conf", "-o", "-name", "ca.crt", "-o", "-path", "/run/secrets/*"]
    looked_for += [word for place in ("build", "tools", "cache", "wheels") for word in ("-o", "-path", f"/{place}")]
    assert held.run(image, "find", "/", "-xdev", "(", *looked_for, ")", user="0:0") == (0, "")
    told = json.dumps(engine.images.get(image).history())
    assert not re.findall(r"https?://|index-url|PIP_", told)


def test_the_same_inputs_make_the_same_content(held: Held) -> None:
    again = f"{DATA_IMAGE}-again"
    environment = os.environ | {"NO_CACHE": "1", "TAG": again}
    done = subprocess.run(
        [REPOSITORY / "images" / "build.sh", "data"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = held.tree(DATA_IMAGE), held.tree(again)
    assert len(first) > 5000
    assert not {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
