"""Kubernetes objects as plain dictionaries: how overlays are built, and where pods are in what they build."""

import copy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import REPOSITORY

MANIFESTS = REPOSITORY / "manifests"
OVERLAYS = ("kind", "kind-gpu", "production")

Object = dict[str, Any]
Objects = list[Object]

_TEMPLATES = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def kubectl() -> str:
    """The kubectl of this environment; it needs no cluster here."""
    found = shutil.which("kubectl", path=str(Path(sys.executable).parent))
    assert found, "no kubectl beside this Python; make test-manifests installs it"
    return found


@cache
def built(folder: Path) -> str:
    """What kustomize makes of a folder, as YAML."""
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr  # it warns of what it will drop
    return done.stdout


def parsed(text: str) -> Objects:
    """The objects of a YAML stream."""
    return [found for found in yaml.safe_load_all(text) if found]


@cache
def _overlay(name: str) -> Objects:
    return parsed(built(MANIFESTS / "overlays" / name))


def overlay(name: str) -> Objects:
    """The objects of an overlay; the caller's own to change."""
    return copy.deepcopy(_overlay(name))


def name_of(found: Mapping[str, Any]) -> str:
    """Kind and name, to tell people."""
    return f"{found['kind']}/{found['metadata']['name']}"


def of_kind(objects: Objects, *kinds: str) -> Iterator[Object]:
    """The objects of some kinds."""
    return (found for found in objects if found["kind"] in kinds)


def by_name(objects: Objects, kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    (found,) = (found for found in of_kind(objects, kind) if found["metadata"]["name"] == name)
    return found


@dataclass(frozen=True, kw_only=True)
class Pods:
    """The pods that an object makes.

    Attributes:
        owner: The object.
        template: Their template: metadata and spec.
    """

    owner: Object
    template: Object

    @property
    def name(self) -> str:
        """The owner, to tell people."""
        return name_of(self.owner)

    @property
    def spec(self) -> Object:
        """The pods' spec."""
        spec: Object = self.template["spec"]
        return spec

    @property
    def labels(self) -> dict[str, str]:
        """The pods' labels."""
        return dict(self.template.get("metadata", {}).get("labels", {}))

    def containers(self) -> Iterator[tuple[str, Object]]:
        """All containers, each with a name to tell people."""
        for container in [*self.spec.get("initContainers", []), *self.spec["containers"]]:
            yield f"{self.name}/{container['name']}", container


def replicated_jobs(runtime: Object) -> list[Object]:
    """The jobs of a `TrainingRuntime`."""
    jobs: list[Object] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return jobs


def pods_of(found: Object) -> Iterator[Pods]:
    """The pods that one object makes."""
    if found["kind"] == "TrainingRuntime":
        for job in replicated_jobs(found):
            yield Pods(owner=found, template=job["template"]["spec"]["template"])
    elif found["kind"] == "Pod":
        yield Pods(owner=found, template=found)
    elif found["kind"] in _TEMPLATES:
        template = found
        for key in _TEMPLATES[found["kind"]]:
            template = template[key]
        yield Pods(owner=found, template=template)


def all_pods(objects: Objects) -> Iterator[Pods]:
    """The pods that all objects make."""
    return (pods for found in objects for pods in pods_of(found))
