"""Every overlay keeps every rule, and every rule sees what is planted against it, in whatever makes the pods."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.manifests import policies
from tests.manifests.objects import OVERLAYS, Object, Objects, all_pods, by_name, of_kind, overlay, pods_of
from tests.manifests.policies import POLICIES, Policy

pytestmark = pytest.mark.manifests

Plant = Callable[[Objects], None]
MAKERS = ("Deployment", "StatefulSet", "CronJob", "TrainingRuntime")


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_an_overlay_keeps_the_rules(policy: Policy, name: str) -> None:
    assert not list(policy(overlay(name)))


@pytest.mark.parametrize("name", OVERLAYS)
def test_no_pods_are_overlooked(name: str) -> None:
    """Wherever an object holds containers, the rules look at them."""

    def lists(value: Any) -> Iterator[list[Object]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in ("containers", "initContainers"):
                    yield inner
                else:
                    yield from lists(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from lists(inner)

    objects = overlay(name)
    there = sum(len(found) for found in lists(objects))
    assert there == sum(len(list(pods.containers())) for pods in all_pods(objects)) > 0


def spec(kind: str, objects: Objects) -> Object:
    """The pod spec of the first object of a kind."""
    return next(pods for found in of_kind(objects, kind) for pods in pods_of(found)).spec


def container(kind: str, objects: Objects) -> Object:
    first: Object = spec(kind, objects)["containers"][0]
    return first


def context(kind: str, objects: Objects) -> Object:
    found: Object = container(kind, objects).setdefault("securityContext", {})
    return found


# Plants by rule, for any kind of object that makes pods.
IN_PODS: list[tuple[Policy, str, Callable[[str, Objects], None]]] = [
    (policies.not_root, "root", lambda kind, all_: context(kind, all_).update(runAsUser=0)),
    (policies.not_root, "maybe root", lambda kind, all_: context(kind, all_).update(runAsNonRoot=False)),
    (policies.not_root, "says nothing", lambda kind, all_: spec(kind, all_).pop("securityContext")),
    (policies.no_privilege, "privileged", lambda kind, all_: context(kind, all_).update(privileged=True)),
    (policies.no_privilege, "escalates", lambda kind, all_: context(kind, all_).pop("allowPrivilegeEscalation")),
    (policies.no_privilege, "keeps", lambda kind, all_: context(kind, all_).pop("capabilities")),
    (policies.no_privilege, "adds", lambda kind, all_: context(kind, all_)["capabilities"].update(add=["NET_ADMIN"])),
    (policies.no_privilege, "host network", lambda kind, all_: spec(kind, all_).update(hostNetwork=True)),
    (policies.no_privilege, "host pids", lambda kind, all_: spec(kind, all_).update(hostPID=True)),
    (
        policies.no_privilege,
        "host path",
        lambda kind, all_: spec(kind, all_)["volumes"].append({"name": "host", "hostPath": {"path": "/"}}),
    ),
    (
        policies.no_privilege,
        "host port",
        lambda kind, all_: container(kind, all_).update(ports=[{"containerPort": 80, "hostPort": 80}]),
    ),
    (policies.seccomp, "none", lambda kind, all_: spec(kind, all_)["securityContext"].pop("seccompProfile")),
    (
        policies.seccomp,
        "unconfined",
        lambda kind, all_: context(kind, all_).update(seccompProfile={"type": "Unconfined"}),
    ),
    (policies.read_only_root, "writable", lambda kind, all_: context(kind, all_).update(readOnlyRootFilesystem=False)),
    (policies.read_only_root, "unsaid", lambda kind, all_: context(kind, all_).pop("readOnlyRootFilesystem")),
    (
        policies.read_only_root,
        "endless",
        lambda kind, all_: spec(kind, all_)["volumes"].append({"name": "x", "emptyDir": {}}),
    ),
    (policies.pinned_images, "latest", lambda kind, all_: container(kind, all_).update(image="a.b:5000/c:latest")),
    (policies.pinned_images, "no tag", lambda kind, all_: container(kind, all_).update(image="a.b:5000/c")),
    (policies.limited, "none", lambda kind, all_: container(kind, all_).pop("resources")),
    (policies.limited, "no limit", lambda kind, all_: container(kind, all_)["resources"]["limits"].pop("memory")),
    (policies.limited, "no request", lambda kind, all_: container(kind, all_)["resources"]["requests"].pop("cpu")),
    (
        policies.no_inline_secret,
        "variable",
        lambda kind, all_: container(kind, all_).update(env=[{"name": "DB_PASSWORD", "value": "tiger"}]),
    ),
    (
        policies.no_inline_secret,
        "URI",
        lambda kind, all_: container(kind, all_).update(env=[{"name": "DB", "value": "postgresql://scott:tiger@db/x"}]),
    ),
    (policies.no_inline_secret, "command", lambda kind, all_: container(kind, all_).update(args=["--password=tiger"])),
    (policies.no_idle_token, "token", lambda kind, all_: spec(kind, all_).update(automountServiceAccountToken=True)),
    (policies.no_idle_token, "unsaid", lambda kind, all_: spec(kind, all_).pop("automountServiceAccountToken")),
    (policies.no_idle_token, "nobody", lambda kind, all_: spec(kind, all_).pop("serviceAccountName")),
]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("policy", "plant"),
    [(policy, plant) for policy, _, plant in IN_PODS],
    ids=[f"{policy.__name__}-{said}" for policy, said, _ in IN_PODS],
)
def test_a_rule_sees_what_is_planted_in_pods(policy: Policy, plant: Callable[[str, Objects], None], kind: str) -> None:
    objects = overlay("production")
    plant(kind, objects)
    assert list(policy(objects))


def remove(kind: str, name: str) -> Plant:
    return lambda objects: objects.remove(by_name(objects, kind, name))


def append(*found: Object) -> Plant:
    return lambda objects: objects.extend(copy.deepcopy(found))


def role(**rule: list[str]) -> Plant:
    return append({"kind": "Role", "metadata": {"name": "planted", "namespace": "thawline"}, "rules": [rule]})


def network_policy(**spec_: Any) -> Plant:
    return append({"kind": "NetworkPolicy", "metadata": {"name": "planted", "namespace": "thawline"}, "spec": spec_})


def named(kind: str, **more: Any) -> Plant:
    return append({"kind": kind, "metadata": {"name": "planted", "namespace": "thawline"}, **more})


MLFLOW = {"matchLabels": {"app.kubernetes.io/name": "mlflow"}}
OTHERS: list[tuple[Policy, str, Plant]] = [
    (policies.probed, "not alive", lambda all_: container("Deployment", all_).pop("livenessProbe")),
    (policies.probed, "not ready", lambda all_: container("StatefulSet", all_).pop("readinessProbe")),
    (policies.default_deny, "gone", remove("NetworkPolicy", "default-deny")),
    (
        policies.default_deny,
        "ingress only",
        lambda all_: by_name(all_, "NetworkPolicy", "default-deny")["spec"].update(policyTypes=["Ingress"]),
    ),
    (
        policies.default_deny,
        "allows",
        lambda all_: by_name(all_, "NetworkPolicy", "default-deny")["spec"].update(ingress=[{}]),
    ),
    (policies.narrow_network, "anyone", network_policy(podSelector=MLFLOW, ingress=[{"ports": [{"port": 5000}]}])),
    (
        policies.narrow_network,
        "empty peer",
        network_policy(podSelector=MLFLOW, egress=[{"to": [{}], "ports": [{"port": 443}]}]),
    ),
    (
        policies.narrow_network,
        "any port",
        network_policy(podSelector=MLFLOW, ingress=[{"from": [{"podSelector": {}}]}]),
    ),
    (policies.no_inline_secret, "Secret", named("Secret", stringData={"password": "tiger"})),
    (policies.no_inline_secret, "ConfigMap", named("ConfigMap", data={"db_password": "tiger"})),
    (policies.no_idle_token, "account", named("ServiceAccount")),
    (policies.least_rights, "cluster", named("ClusterRole", rules=[])),
    (policies.least_rights, "bound", named("ClusterRoleBinding")),
    (policies.least_rights, "any verb", role(apiGroups=["apps"], resources=["deployments"], verbs=["*"])),
    (policies.least_rights, "any resource", role(apiGroups=["apps"], resources=["*"], verbs=["get"])),
    (policies.least_rights, "any secret", role(apiGroups=[""], resources=["secrets"], verbs=["get"])),
    (policies.least_rights, "exec", role(apiGroups=[""], resources=["pods/exec"], verbs=["get"])),
    (policies.least_rights, "makes pods", role(apiGroups=[""], resources=["pods"], verbs=["create"])),
    (
        policies.restricted,
        "baseline",
        lambda all_: by_name(all_, "Namespace", "thawline")["metadata"]["labels"].update(
            {"pod-security.kubernetes.io/enforce": "baseline"}
        ),
    ),
    (
        policies.restricted,
        "unpinned",
        lambda all_: by_name(all_, "Namespace", "thawline")["metadata"]["labels"].update(
            {"pod-security.kubernetes.io/warn-version": "latest"}
        ),
    ),
    (policies.shared_memory, "none", lambda all_: container("TrainingRuntime", all_)["volumeMounts"].pop()),
    (
        policies.shared_memory,
        "on disk",
        lambda all_: spec("TrainingRuntime", all_)["volumes"][-1]["emptyDir"].pop("medium"),
    ),
    (policies.budgeted, "MLflow", remove("PodDisruptionBudget", "mlflow")),
    (policies.budgeted, "training", remove("PodDisruptionBudget", "thawline-trainer")),
    (policies.bounded_namespace, "no quota", remove("ResourceQuota", "thawline")),
    (policies.bounded_namespace, "no defaults", remove("LimitRange", "thawline")),
    (policies.graded, "no class", remove("PriorityClass", "thawline-backfill")),
    (
        policies.graded,
        "upside down",
        lambda all_: by_name(all_, "PriorityClass", "thawline-backfill").update(value=200_000),
    ),
    (
        policies.graded,
        "preempts",
        lambda all_: by_name(all_, "PriorityClass", "thawline-backfill").pop("preemptionPolicy"),
    ),
    (policies.graded, "unnamed", lambda all_: spec("TrainingRuntime", all_).pop("priorityClassName")),
]


@pytest.mark.parametrize(
    ("policy", "plant"),
    [(policy, plant) for policy, _, plant in OTHERS],
    ids=[f"{policy.__name__}-{said}" for policy, said, _ in OTHERS],
)
def test_a_rule_sees_what_is_planted(policy: Policy, plant: Plant) -> None:
    objects = overlay("production")
    plant(objects)
    assert list(policy(objects))


def test_every_rule_has_a_plant() -> None:
    assert {policy for policy, _, _ in [*IN_PODS, *OTHERS]} == set(POLICIES)
