"""The parts that are fetched when a cluster is made: pinned, of the versions of our locks, bent to our rules.

They cannot be built without a network; what is said here is about our side of them.
"""

import json
import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from components import images
from tests.conftest import REPOSITORY
from tests.manifests.objects import MANIFESTS, by_name, of_kind, overlay
from trainer.recipe import ClusterConfig

pytestmark = pytest.mark.manifests


def kustomization(folder: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())
    return content


def locked(package: str) -> str:
    (version,) = re.findall(rf"^{package}==(\S+)$", (REPOSITORY / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    return str(version)


@pytest.mark.parametrize("folder", ["kfp", "kfp/cluster-scoped", "kubeflow-trainer"])
def test_what_is_fetched_is_pinned(folder: str) -> None:
    for place in kustomization(folder)["resources"]:
        assert re.fullmatch(r"https://github\.com/kubeflow/\S+//\S+\?ref=v?\d+\.\d+\.\d+&timeout=\d+s", place)


def test_servers_are_of_the_clients_versions() -> None:
    """KFP's server and SDK of one minor release; MLflow's of one release."""
    (place,) = kustomization("kfp")["resources"]
    assert kustomization("kfp/cluster-scoped")["resources"][0].partition("?ref=")[2] == place.partition("?ref=")[2]
    assert place.partition("?ref=")[2].split(".")[:2] == locked("kfp").split(".")[:2]
    (mlflow,) = by_name(overlay("kind"), "Deployment", "mlflow")["spec"]["template"]["spec"]["containers"]
    assert mlflow["image"] == f"ghcr.io/mlflow/mlflow:v{locked('mlflow')}-full"


def test_parts_go_into_the_namespace() -> None:
    assert kustomization("kfp")["namespace"] == kustomization("kfp/cluster-scoped")["namespace"] == "thawline"


def api_server() -> dict[str, str]:
    patch = yaml.safe_load((MANIFESTS / "kfp" / "api-server.yaml").read_text())
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable["value"] for variable in container["env"]}


def test_steps_keep_the_rules_too() -> None:
    """KFP drops capabilities and sets seccomp itself; the rest is patched into each workflow as it is compiled."""
    spec = json.loads(api_server()["COMPILED_PIPELINE_SPEC_PATCH"])
    names = {found["metadata"]["name"] for found in of_kind(overlay("production"), "PriorityClass")}
    assert spec["podPriorityClassName"] in names
    assert "{{" not in spec["podSpecPatch"], "Argo would take it for a variable of its own"
    pod = yaml.safe_load(spec["podSpecPatch"])
    (container,) = pod["containers"]
    assert container["name"] == "main"
    assert container["securityContext"] == {"runAsNonRoot": True, "readOnlyRootFilesystem": True}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"])
    assert pod["securityContext"]["fsGroup"] == images.IMAGE_USER
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "step"}}
    whole["spec"] = {**pod, "containers": [{**container, "image": "any:1"}]}
    kubernetes_validate.validate(whole, "1.33", strict=True)


def test_a_run_without_an_account_gets_ours() -> None:
    assert api_server()["DEFAULTPIPELINERUNNERSERVICEACCOUNT"] == ClusterConfig().service_account


def test_secrets_that_everybody_knows_are_deleted() -> None:
    deleted = {
        (patch["target"]["kind"], patch["target"]["name"])
        for patch in kustomization("kfp")["patches"]
        if "$patch: delete" in patch.get("patch", "")
    }
    assert {("Secret", "mysql-secret"), ("Secret", "mlpipeline-minio-artifact")} <= deleted
    assert {("Role", "pipeline-runner"), ("RoleBinding", "pipeline-runner-binding")} <= deleted
    mysql = yaml.safe_load((MANIFESTS / "kfp" / "mysql.yaml").read_text())
    variables = {one["name"]: one for one in mysql["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert variables["MYSQL_ALLOW_EMPTY_PASSWORD"] == {"name": "MYSQL_ALLOW_EMPTY_PASSWORD", "$patch": "delete"}
    assert variables["MYSQL_ROOT_PASSWORD"]["valueFrom"]["secretKeyRef"]["name"] == "mysql-secret"
