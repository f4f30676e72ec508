"""The runbook's commands are ones that there are, on things that there are, and its sections say the same things."""

import re
import shlex

import pytest

from pipelines.cli import _build_parser
from tests.conftest import REPOSITORY
from tests.manifests.objects import name_of, overlay

pytestmark = pytest.mark.manifests

TEXT = (REPOSITORY / "docs" / "operations.md").read_text()
COMMANDS = [
    command
    for command in re.findall(r"(?:`|^)thawline ((?:[a-z]+ )?[^`\n]+)", TEXT, re.MULTILINE)
    if "..." not in command
]
SECTIONS = dict(re.findall(r"^## (Thawline\S+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
KINDS = {
    "deploy": "Deployment",
    "statefulset": "StatefulSet",
    "cronjob": "CronJob",
    "networkpolicy": "NetworkPolicy",
    "service": "Service",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_of_ours(command: str) -> None:
    words = ["8" if word in ("N", "M") else word for word in shlex.split(command.replace("DATE", "2024-01-01"))]
    assert _build_parser().parse_args(words).verb


def test_there_are_commands_and_ten_failures() -> None:
    assert len(COMMANDS) >= 5
    assert len(SECTIONS) == 10


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_says_all_that_is_needed(name: str) -> None:
    places = [SECTIONS[name].find(f"**{word}") for word in ("Means**", "Look", "Do", "Over**")]
    assert -1 not in places
    assert places == sorted(places)


def test_what_is_named_is_there() -> None:
    ours = {name_of(found) for found in overlay("production")}
    ours |= {f"Deployment/{name}" for name in ("ml-pipeline-scheduledworkflow",)}
    ours |= {f"Service/{name}" for name in ("ml-pipeline-ui",)}
    named = re.findall(
        rf"\b({'|'.join(KINDS)})[/ ]([a-z][a-z-]*[a-z])", "\n".join(re.findall(r"`[^`]+`|^k .*", TEXT, re.M))
    )
    assert named
    assert not [(kind, name) for kind, name in named if f"{KINDS[kind]}/{name}" not in ours]
