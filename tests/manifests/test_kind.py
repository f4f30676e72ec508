"""The scripts of `make kind-up` and `kind-down`, run with tools that only write down how they were called.

No cluster is made here: what real tools do with these commands is not shown.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.manifests.objects import MANIFESTS

pytestmark = pytest.mark.manifests

GIB = 2**30
TOOLS = ("docker", "kind", "kubectl", "git", "make", "helm")
OTHERS = ("bash", "basename", "base64", "cat", "chmod", "cp", "dirname", "grep", "head", "mkdir", "sed", "sleep", "tr")
FAKE = """#!/bin/bash
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $*" in
    "docker info --format {{.MemTotal}}") echo "$MEMORY"; exit "$ENGINE" ;;
    "docker info --format {{.DefaultRuntime}}") echo "$RUNTIME" ;;
    "docker image inspect "*) exit "$IMAGES" ;;
    "kind get clusters") echo "$CLUSTERS" ;;
    "kubectl "*" get secret "*) exit "$SECRETS" ;;
    "kubectl "*" create -f -") cat >>"$SECRETS_MADE" ;;
    "kubectl "*" port-forward "*) exec sleep 30 ;;
esac
"""


class Stage:
    """A copy of what the scripts need, and a PATH of fake tools."""

    def __init__(self, folder: Path, tools: tuple[str, ...] = TOOLS) -> None:
        self.root, self.bin, self.calls = folder / "repository", folder / "bin", folder / "calls"
        self.made = folder / "secrets"
        shutil.copytree(MANIFESTS / "kind", self.root / "manifests" / "kind")
        (self.root / "components").mkdir()
        shutil.copy(REPOSITORY / "components" / "images.py", self.root / "components")
        (self.root / ".thawline" / "logs" / "complete_journey").mkdir(parents=True)
        self.bin.mkdir()
        for tool in (*OTHERS, "timeout"):
            self._link(tool)
        thawline = self.root / ".venv" / "bin" / "thawline"
        thawline.parent.mkdir(parents=True)
        for path in (*(self.bin / tool for tool in tools), thawline):
            path.write_text(FAKE)
            path.chmod(0o755)

    def _link(self, tool: str) -> None:
        found = shutil.which(tool)
        assert found
        (self.bin / tool).symlink_to(found)

    def run(self, script: str = "up.sh", **environment: str) -> "subprocess.CompletedProcess[str]":
        told = {
            "PATH": str(self.bin),
            "CALLS": str(self.calls),
            "SECRETS_MADE": str(self.made),
            "MEMORY": str(32 * GIB),
            "ENGINE": "0",
            "RUNTIME": "runc",
            "IMAGES": "0",
            "CLUSTERS": "",
            "SECRETS": "1",
            **environment,
        }
        command = [str(self.bin / "bash"), str(self.root / "manifests" / "kind" / script)]
        return subprocess.run(command, env=told, capture_output=True, text=True, timeout=60, check=False)

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


def without(*tools: str) -> tuple[str, ...]:
    return tuple(tool for tool in TOOLS if tool not in tools)


@pytest.mark.parametrize("tool", ["docker", "kind", "kubectl", "git", "make"])
def test_a_missing_tool_is_told_in_one_line(tool: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path, without(tool))
    done = stage.run()
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"{tool} is not installed" in done.stderr
    assert not stage.called()


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    done = Stage(tmp_path, ("docker", "git", "make")).run(GPU="1")
    assert done.returncode == 2
    assert re.findall(r"kind-up: (\w+) is not", done.stderr) == ["kind", "kubectl", "helm"]


def test_helm_is_wanted_for_gpus_only(tmp_path: Path) -> None:
    assert Stage(tmp_path / "with", without("helm")).run(GPU="1").returncode == 2
    assert Stage(tmp_path / "without", without("helm")).run().returncode == 0


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"ENGINE": "1"}, ["the Docker engine does not answer"]),
        ({"MEMORY": str(8 * GIB)}, ["8 GiB of memory; give it 16"]),
        ({"IMAGES": "1"}, ["thawline/data:0.1.0 is not built", "thawline/trainer-cpu:0.1.0 is not built"]),
    ],
    ids=["engine", "memory", "images"],
)
def test_what_docker_lacks_is_told(environment: dict[str, str], said: list[str], tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    done = stage.run(**environment)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == len(said)
    assert all(text in line for text, line in zip(said, lines, strict=True))
    assert not [call for call in stage.called() if not call.startswith("docker ")]


def order(calls: list[str], *wanted: str) -> list[str]:
    """The calls that begin like one of those wanted, by what they are wanted as."""
    return [name for call in calls for name in wanted if name in call]


def test_a_cluster_is_made_in_order(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    done = stage.run()
    assert done.returncode == 0, done.stderr
    steps = (
        "kind create cluster --config manifests/kind/cluster.yaml",
        "kind load docker-image thawline/data:0.1.0 thawline/trainer-cpu:0.1.0 --name thawline",
        "-f manifests/base/namespace.yaml",
        "-k manifests/kfp/cluster-scoped",
        "-k manifests/kubeflow-trainer",
        "condition=Established",
        "kubeflow-system wait",
        "get secret postgresql",
        "-k manifests/overlays/kind",
        "rollout status statefulset/postgresql",
        "make --no-print-directory .thawline/logs/complete_journey",
        "thawline retrain --runner cluster",
    )
    assert order(stage.called(), *steps) == list(steps)
    assert [call for call in stage.called() if call.endswith("-k manifests/kfp")]
    assert not [call for call in stage.called() if call.startswith("helm")]
    contexts = {re.match(r"kubectl --context (\S+) ", call) for call in stage.called() if call.startswith("kubectl")}
    assert None not in contexts, "a command might reach another cluster"
    assert (stage.root / ".thawline" / "kind" / "logs" / "complete_journey").is_dir()


def test_secrets_pass_through_pipes_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    done = stage.run()
    made = [yaml.safe_load(text) for text in stage.made.read_text().split("apiVersion: v1\n") if text]
    assert [secret["metadata"]["name"] for secret in made] == [
        "postgresql",
        "mysql-secret",
        "mlpipeline-minio-artifact",
    ]
    values = [value for secret in made for key, value in secret["stringData"].items() if key != "username"]
    assert len(values) == len(set(values)) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9]{24,}", value) for value in values)
    seen = done.stdout + done.stderr + "\n".join(stage.called())
    seen += "".join(path.read_text() for path in stage.root.rglob("*") if path.is_file())
    assert not [value for value in values if value in seen]


def test_a_second_run_keeps_what_is_there(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.run(CLUSTERS="other\nthawline", SECRETS="0").returncode == 0
    assert not [call for call in stage.called() if "create cluster" in call]
    assert not stage.made.exists()


@pytest.mark.parametrize(
    ("runtime", "chart"), [("runc", "fake-gpu-operator --version"), ("nvidia", "driver.enabled=false")]
)
def test_gpus_are_real_where_the_runtime_is(runtime: str, chart: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    done = stage.run(GPU="1", RUNTIME=runtime)
    assert done.returncode == 0, done.stderr
    assert ("GPUs are fake" in done.stderr) is (runtime == "runc")
    steps = (
        "cluster-gpu.yaml",
        "-k manifests/overlays/kind-gpu",
        "helm upgrade",
        "create -f manifests/kind/gpu-check.yaml",
    )
    assert order(stage.called(), *steps) == list(steps)
    (helm,) = (call for call in stage.called() if call.startswith("helm"))
    assert chart in helm
    assert "--version" in helm
    assert not [call for call in stage.called() if "thawline retrain" in call]


def test_a_failing_command_ends_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    kind = stage.bin / "kind"
    kind.write_text(FAKE.replace("esac", '    "kind load "*) exit 7 ;;\nesac'))
    assert stage.run().returncode == 7
    assert not [call for call in stage.called() if "apply" in call]


def test_down_deletes_the_cluster(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.run("down.sh").returncode == 0
    assert stage.called() == ["kind delete cluster --name thawline"]


def test_down_tells_what_is_missing(tmp_path: Path) -> None:
    done = Stage(tmp_path, without("kind")).run("down.sh")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["kind-down: kind is not installed; put it on the PATH"]


@pytest.mark.parametrize("script", ["up.sh", "down.sh"])
def test_shellcheck_finds_nothing(script: str) -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, MANIFESTS / "kind" / script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert os.access(MANIFESTS / "kind" / script, os.X_OK)


@pytest.mark.parametrize("name", ["cluster.yaml", "cluster-gpu.yaml"])
def test_nodes_share_the_store(name: str) -> None:
    config = yaml.safe_load((MANIFESTS / "kind" / name).read_text())
    volume = yaml.safe_load((MANIFESTS / "overlays" / "kind" / "store.yaml").read_text())
    images = {node["image"] for node in config["nodes"]}
    assert len(images) == 1
    assert re.fullmatch(r"kindest/node:v1\.\d+\.\d+", images.pop())
    for node in config["nodes"]:
        mount = {"hostPath": ".thawline/kind", "containerPath": volume["spec"]["hostPath"]["path"]}
        assert mount in node["extraMounts"]
