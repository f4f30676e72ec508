"""What objects say of each other is so: selectors select, names exist, and the code names what is there."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from components import images
from pipelines.places import METRICS_PORT
from tests.conftest import REPOSITORY
from tests.manifests.objects import (
    MANIFESTS,
    OVERLAYS,
    Object,
    Objects,
    all_pods,
    by_name,
    name_of,
    of_kind,
    overlay,
    parsed,
)
from trainer.recipe import ClusterConfig
from trainer.telemetry import PORT_VARIABLE

pytestmark = pytest.mark.manifests

Labels = Mapping[str, str]

# Pods that others make here: Kubeflow Pipelines 2.17's own and those of its steps, with the labels that it gives them.
_KFP = {"application-crd-id": "kubeflow-pipelines"}
FOREIGN_PODS: dict[str, list[Labels]] = {
    "thawline": [
        {**_KFP, "app": "ml-pipeline"},
        {**_KFP, "app": "seaweedfs"},
        {**_KFP, "app": "cache-server"},
        {**_KFP, "component": "metadata-grpc-server"},
        {"pipelines.kubeflow.org/v2_component": "true"},
        {"pipelines.kubeflow.org/v2_component": "true", "thawline/metrics": "true"},
    ],
    "kube-system": [{"k8s-app": "kube-dns"}],
    "monitoring": [{"app.kubernetes.io/name": "prometheus"}],
}
# What is made outside of these files, where an overlay does not make it itself; manifests/README.md says how.
FOREIGN = {
    "Secret/postgresql",
    "Secret/mysql-secret",
    "Secret/mlpipeline-minio-artifact",
    "ConfigMap/kfp-launcher",
}


def selects(selector: Object, labels: Labels) -> bool:
    """Whether a label selector takes a pod."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for wanted in selector.get("matchExpressions", []):
        assert wanted["operator"] == "In"
        if labels.get(wanted["key"]) not in wanted["values"]:
            return False
    return True


def pods_by_namespace(objects: Objects) -> dict[str, list[Labels]]:
    found = {namespace: list(pods) for namespace, pods in FOREIGN_PODS.items()}
    for pods in all_pods(objects):
        found[pods.owner["metadata"]["namespace"]].append(pods.labels)
    return found


def peers(policy: Object) -> Iterator[Object]:
    yield {"podSelector": policy["spec"]["podSelector"]}
    for direction, peer in (("ingress", "from"), ("egress", "to")):
        for rule in policy["spec"].get(direction, []):
            yield from (place for place in rule.get(peer, []) if "ipBlock" not in place)


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_selector_selects(name: str) -> None:
    objects = overlay(name)
    pods = pods_by_namespace(objects)
    for policy in of_kind(objects, "NetworkPolicy"):
        for peer in peers(policy):
            chosen = peer.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": "thawline"}})
            there = [
                labels
                for namespace, all_ in pods.items()
                if selects(chosen, {"kubernetes.io/metadata.name": namespace})
                for labels in all_
            ]
            assert any(selects(peer.get("podSelector", {}), labels) for labels in there), (name_of(policy), peer)
    for found in of_kind(objects, "PodDisruptionBudget", "PodMonitor"):
        assert any(selects(found["spec"]["selector"], labels) for labels in pods["thawline"]), name_of(found)
    for found in of_kind(objects, "Deployment", "StatefulSet"):
        assert selects(found["spec"]["selector"], found["spec"]["template"]["metadata"]["labels"]), name_of(found)


def port_names(objects: Objects, selector: Object) -> set[str]:
    return {
        port["name"]
        for pods in all_pods(objects)
        if selects(selector, pods.labels)
        for _, container in pods.containers()
        for port in container.get("ports", [])
    }


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_service_and_monitor_finds_a_port(name: str) -> None:
    objects = overlay(name)
    for service in of_kind(objects, "Service"):
        there = port_names(objects, {"matchLabels": service["spec"]["selector"]})
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= there, name_of(service)
    for monitor in of_kind(objects, "PodMonitor"):
        wanted = {place["port"] for place in monitor["spec"]["podMetricsEndpoints"] if "port" in place}
        assert wanted <= port_names(objects, monitor["spec"]["selector"]), name_of(monitor)
    for pods in all_pods(objects):
        for told, container in pods.containers():
            ports = {port["name"] for port in container.get("ports", [])}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                for way in ("httpGet", "tcpSocket"):
                    if way in container.get(probe, {}):
                        assert container[probe][way]["port"] in ports, told


def references(objects: Objects) -> Iterator[tuple[str, str]]:
    """Who refers to which object, by kind and name."""
    for pods in all_pods(objects):
        spec = pods.spec
        yield pods.name, f"ServiceAccount/{spec['serviceAccountName']}"
        if "priorityClassName" in spec:
            yield pods.name, f"PriorityClass/{spec['priorityClassName']}"
        for volume in spec.get("volumes", []):
            if "persistentVolumeClaim" in volume:
                yield pods.name, f"PersistentVolumeClaim/{volume['persistentVolumeClaim']['claimName']}"
            if "secret" in volume:
                yield pods.name, f"Secret/{volume['secret']['secretName']}"
            if "configMap" in volume:
                yield pods.name, f"ConfigMap/{volume['configMap']['name']}"
        for told, container in pods.containers():
            for variable in container.get("env", []):
                source = variable.get("valueFrom", {})
                if "secretKeyRef" in source:
                    yield told, f"Secret/{source['secretKeyRef']['name']}"
                if "configMapKeyRef" in source:
                    yield told, f"ConfigMap/{source['configMapKeyRef']['name']}"
            assert not container.get("envFrom"), told
    for binding in of_kind(objects, "RoleBinding"):
        yield name_of(binding), f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}"
        yield from ((name_of(binding), f"{who['kind']}/{who['name']}") for who in binding["subjects"])
    for role in of_kind(objects, "Role"):
        for rule in role["rules"]:
            for resource in {"secrets", "configmaps"} & set(rule["resources"]):
                kind = {"secrets": "Secret", "configmaps": "ConfigMap"}[resource]
                yield from ((name_of(role), f"{kind}/{one}") for one in rule["resourceNames"])
    for quota in of_kind(objects, "ResourceQuota"):
        for scope in quota["spec"].get("scopeSelector", {}).get("matchExpressions", []):
            yield from ((name_of(quota), f"PriorityClass/{one}") for one in scope["values"])
    for stateful in of_kind(objects, "StatefulSet"):
        yield name_of(stateful), f"Service/{stateful['spec']['serviceName']}"
    for secret in of_kind(objects, "ExternalSecret"):
        store = secret["spec"]["secretStoreRef"]
        yield name_of(secret), f"{store['kind']}/{store['name']}"
    for store in of_kind(objects, "SecretStore"):
        account = store["spec"]["provider"]["gcpsm"]["auth"]["workloadIdentity"]["serviceAccountRef"]["name"]
        yield name_of(store), f"ServiceAccount/{account}"
    for volume in of_kind(objects, "PersistentVolume"):
        yield name_of(volume), f"PersistentVolumeClaim/{volume['spec']['claimRef']['name']}"


def made_by(objects: Objects) -> set[str]:
    external = {f"Secret/{found['spec']['target']['name']}" for found in of_kind(objects, "ExternalSecret")}
    return {name_of(found) for found in objects} | external


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_reference_leads_somewhere(name: str) -> None:
    objects = overlay(name)
    lost = {(who, what) for who, what in references(objects) if what not in made_by(objects) | FOREIGN}
    assert not lost


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("ServiceAccount", "mlflow"),
        ("PersistentVolumeClaim", "thawline-store"),
        ("PriorityClass", "thawline-retrain"),
        ("Role", "thawline-step-engine"),
        ("Service", "postgresql"),
        ("SecretStore", "secret-manager"),
    ],
)
def test_a_lost_reference_is_seen(kind: str, name: str) -> None:
    objects = overlay("production")
    objects.remove(by_name(objects, kind, name))
    assert f"{kind}/{name}" in {what for _, what in references(objects)} - made_by(objects) - FOREIGN


def test_what_is_foreign_is_documented_and_made() -> None:
    readme = (MANIFESTS / "README.md").read_text()
    up = (MANIFESTS / "kind" / "up.sh").read_text()
    production = made_by(overlay("production"))
    for secret in (name for name in FOREIGN if name.startswith("Secret/")):
        assert f"`{secret.removeprefix('Secret/')}`" in readme, secret
        assert f"new_secret {secret.removeprefix('Secret/')} " in up, secret
        assert secret in production


@pytest.mark.parametrize("name", OVERLAYS)
def test_our_images_are_those_of_the_code(name: str) -> None:
    ours = {value for key, value in vars(images).items() if key.endswith("_IMAGE")}
    seen = {container["image"] for pods in all_pods(overlay(name)) for _, container in pods.containers()}
    used = {"thawline/" + image.rpartition("thawline/")[2] for image in seen if "thawline/" in image}
    assert used
    assert used <= ours


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_cluster_is_the_one_that_recipes_expect(name: str) -> None:
    objects, cluster = overlay(name), ClusterConfig()
    assert by_name(objects, "ServiceAccount", cluster.service_account)["automountServiceAccountToken"] is True
    assert cluster.claim is not None
    assert by_name(objects, "PersistentVolumeClaim", cluster.claim)["spec"]["accessModes"] == ["ReadWriteMany"]
    host, _, port = cluster.tracking_uri.removeprefix("http://").partition(":")
    assert by_name(objects, "Service", host)["spec"]["ports"][0]["port"] == int(port)
    runtime = by_name(objects, "TrainingRuntime", cluster.runtime)
    for pods in all_pods([runtime]):
        (volume,) = (
            one["name"] for one in pods.spec["volumes"] if one.get("persistentVolumeClaim", {}).get("claimName")
        )
        for _, container in pods.containers():
            assert {"name": volume, "mountPath": cluster.store} in container["volumeMounts"]


def test_gpu_nodes_are_asked_for_where_there_are_any() -> None:
    for name, wanted in {"kind": False, "kind-gpu": True, "production": True}.items():
        for pods in all_pods(list(of_kind(overlay(name), "TrainingRuntime"))):
            assert bool(pods.spec.get("nodeSelector")) is wanted
            assert bool(pods.spec.get("tolerations")) is wanted
            for _, container in pods.containers():
                assert ("nvidia.com/gpu" in container["resources"]["limits"]) is wanted


def test_the_back_fills_runtime_differs_in_its_priority_alone() -> None:
    objects = overlay("production")

    def without_priority(name: str) -> Any:
        runtime = by_name(objects, "TrainingRuntime", name)
        (pods,) = all_pods([runtime])
        pods.spec.pop("priorityClassName")
        return runtime["spec"]

    assert without_priority("thawline-trainer") == without_priority("thawline-trainer-backfill")


def test_production_is_set_in_one_place() -> None:
    """The settings' values stand nowhere else, save for the mirror, which kustomize wants beside its images."""
    folder = MANIFESTS / "overlays" / "production"
    settings = yaml.safe_load((folder / "settings.yaml").read_text())["data"]
    assert "ConfigMap/thawline-settings" not in made_by(overlay("production"))
    built = yaml.safe_dump_all(overlay("production"))
    for key, value in settings.items():
        assert value in built, f"{key} is used by nothing"
        for file in folder.glob("*.yaml"):
            if file.name != "settings.yaml":
                lines = [line for line in file.read_text().splitlines() if "newName:" not in line]
                assert value not in "\n".join(lines), f"{file.name} repeats {key}"


def test_metrics_are_asked_for_where_they_are_served() -> None:
    """By label and port, as the DAG gives them to training steps and the runtime to hosts."""
    objects = overlay("production")
    for policy in of_kind(objects, "NetworkPolicy"):
        if policy["metadata"]["name"].startswith("metrics-of-"):
            assert [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]] == [METRICS_PORT]
    steps = by_name(objects, "PodMonitor", "thawline-steps")["spec"]
    assert steps["podMetricsEndpoints"][0]["relabelings"][-1]["replacement"] == f"$1:{METRICS_PORT}"
    _, platforms = parsed((REPOSITORY / "tests" / "pipelines" / "golden" / "retrain.yaml").read_text())
    executors = platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    chosen = [name for name, step in executors.items() if selects(steps["selector"], step["podMetadata"]["labels"])]
    assert chosen == ["exec-pretrain", "exec-train"]
    for pods in all_pods(list(of_kind(objects, "TrainingRuntime"))):
        for _, container in pods.containers():
            assert {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"} in container["ports"]
            assert {"name": PORT_VARIABLE, "value": str(METRICS_PORT)} in container["env"]


def test_pods_of_our_images_run_as_their_user() -> None:
    for pods in all_pods(overlay("production")):
        if any("/thawline/" in container["image"] for _, container in pods.containers()):
            assert pods.spec["securityContext"]["runAsUser"] == images.IMAGE_USER, pods.name
