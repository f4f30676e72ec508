"""Every object is one that the API server would take, unknown fields refused: Kubernetes' own and custom resources."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models

from tests.manifests.objects import (
    MANIFESTS,
    OVERLAYS,
    Object,
    Objects,
    by_name,
    name_of,
    of_kind,
    overlay,
    parsed,
    replicated_jobs,
)
from tests.manifests.schemas import CUSTOM_RESOURCES

pytestmark = pytest.mark.manifests

OLDEST = (1, 33)
# It reads all definitions of a release, some megabytes, for each object that it judges.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


def releases() -> list[str]:
    """Releases of Kubernetes from `OLDEST` on that there are schemas of."""
    known = {kubernetes_validate.utils.major_minor(version) for version in kubernetes_validate.utils.all_versions()}
    found = {tuple(int(part) for part in version.split(".")) for version in known}
    return [".".join(map(str, release)) for release in sorted(found) if release >= OLDEST]


RELEASES = releases()


@cache
def _problems(text: str, release: str) -> tuple[str, ...]:
    found = json.loads(text)
    schema = CUSTOM_RESOURCES.get((found["apiVersion"], found["kind"]))
    if schema is not None:
        return tuple(error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(found))
    try:
        kubernetes_validate.validate(found, release, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return (str(error),)
    return ()


def problems(found: Object, release: str) -> tuple[str, ...]:
    """What a strict API server of a release would say against an object."""
    return _problems(json.dumps(found, sort_keys=True), release)  # overlays share most of theirs


def with_jobs(objects: Objects) -> Objects:
    """The objects, and the jobs that runtimes make of their templates."""
    jobs: Objects = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name_of(runtime)},
            "spec": job["template"]["spec"],
        }
        for runtime in of_kind(objects, "TrainingRuntime")
        for job in replicated_jobs(runtime)
    ]
    return objects + jobs


def test_there_are_schemas_of_several_releases() -> None:
    assert RELEASES[0] == "1.33"
    assert len(RELEASES) > 1


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_is_valid(name: str, release: str) -> None:
    said = {name_of(found): problems(found, release) for found in with_jobs(overlay(name))}
    assert not {name: wrong for name, wrong in said.items() if wrong}


def test_the_gpu_check_is_valid() -> None:
    (found,) = parsed((MANIFESTS / "kind" / "gpu-check.yaml").read_text())
    assert not problems(found, RELEASES[0])
    runtime = by_name(overlay("kind-gpu"), "TrainingRuntime", found["spec"]["runtimeRef"]["name"])
    assert runtime["metadata"]["namespace"] == found["metadata"]["namespace"]


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", "spec.template.spec.containers.0.imagePullPolice", "Always"),
        ("Deployment", "spec.replicas", "two"),
        ("StatefulSet", "spec.template.spec.volumes.0.emptydir", {}),
        ("NetworkPolicy", "spec.ingres", []),
        ("ServiceAccount", "automountServiceAccountToken", "no"),
        ("TrainingRuntime", "spec.mlPolicy.pytorch", {}),
        ("TrainingRuntime", "spec.template.spec.replicatedJobs.0.template.spec.template.spec.nodeSelect", {}),
        ("ExternalSecret", "spec.data.0.remoteRef.name", "x"),
        ("SecretStore", "spec.provider", {}),
        ("PrometheusRule", "spec.groups.0.rules.0.for", "a while"),
        ("PrometheusRule", "spec.groups.0.rules.0.expression", "1"),
        ("PodMonitor", "spec.podMetricsEndpoints.0.targetport", 1),
    ],
)
def test_a_mistake_is_seen(kind: str, path: str, value: Any) -> None:
    objects = overlay("production")
    place: Any = next(of_kind(objects, kind))
    *way, last = path.split(".")
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    assert any(problems(found, RELEASES[0]) for found in with_jobs(objects))


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_trainers_own_models_lose_nothing_of_a_runtime(name: str) -> None:
    """They are made of the published API; what they do not know they drop."""
    for runtime in of_kind(overlay(name), "TrainingRuntime"):
        model = models.TrainerV1alpha1TrainingRuntime.from_dict(runtime)
        assert model is not None
        assert model.to_dict() == runtime


def test_nothing_is_twice_and_all_is_in_the_namespace() -> None:
    cluster_wide = {"Namespace", "PriorityClass", "PersistentVolume"}
    for name in OVERLAYS:
        objects = overlay(name)
        names = [name_of(found) for found in objects]
        assert len(names) == len(set(names))
        for found in objects:
            namespace = found["metadata"].get("namespace")
            assert namespace == (None if found["kind"] in cluster_wide else "thawline"), name_of(found)


def test_every_yaml_file_is_used() -> None:
    """By a kustomization, or by kind's scripts."""
    named: set[Path] = set()
    for file in MANIFESTS.rglob("kustomization.yaml"):
        named.add(file)
        content = yaml.safe_load(file.read_text())
        entries = [*content.get("resources", []), *content.get("components", [])]
        entries += [patch["path"] for patch in content.get("patches", []) if "path" in patch]
        named |= {(file.parent / entry).resolve() for entry in entries if "://" not in entry}
    scripts = "".join(path.read_text() for path in (MANIFESTS / "kind").glob("*.sh"))
    for file in MANIFESTS.rglob("*.yaml"):
        used = file in named or file.name in scripts or file.name.endswith(".test.yaml")
        assert used, f"{file} is used by nothing"


def test_a_quota_by_priority_counts_what_it_may() -> None:
    """A rule of the API server's that no schema tells."""
    may = {"pods"} | {f"{kind}{what}" for kind in ("", "requests.", "limits.") for what in ("cpu", "memory")}
    for quota in of_kind(overlay("production"), "ResourceQuota"):
        assert "scopeSelector" not in quota["spec"] or quota["spec"]["hard"].keys() <= may
