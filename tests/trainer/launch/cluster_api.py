"""A Kubernetes API server of a few answers, for what the SDK asks: a runtime, `TrainJob` objects, their pods and logs.

It is what no cluster-less machine has; it keeps what it is given and shows the states that a test sets.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import TrainerClient
from kubernetes.client import Configuration

NAMESPACE = "thawline"
_JOBS = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"
_RUNTIMES = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainingruntimes"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

Json = dict[str, Any]


class Cluster:
    """What the API server knows.

    Attributes:
        jobs: By name.
        submitted: Every `TrainJob` that was created.
        deleted: Names, in order.
        pods: Phase by host, of every job.
        logs: By host.
        num_refusals: Answers of 503 still to be given.
        on_look: Called at each look at a job, with its name, before the answer.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Json] = {}
        self.submitted: list[Json] = []
        self.deleted: list[str] = []
        self.pods: dict[str, str] = {}
        self.logs: dict[str, str] = {}
        self.num_refusals = 0
        self.on_look: Callable[[str], None] = lambda name: None
        self._num_created = 0

    def create(self, job: Json) -> Json:
        """Keeps a job; each is a second younger than the one before."""
        self._num_created += 1
        created = f"2024-01-09T00:00:{self._num_created:02}Z"
        kept = {**job, "metadata": {**job["metadata"], "namespace": NAMESPACE, "creationTimestamp": created}}
        self.jobs[job["metadata"]["name"]] = kept
        return kept

    def end(self, name: str, condition: str) -> None:
        """Says of a job that it is ``Complete`` or ``Failed``."""
        at = {"lastTransitionTime": "2024-01-09T01:00:00Z", "message": "", "reason": condition}
        self.jobs[name]["status"] = {"conditions": [{**at, "type": condition, "status": "True"}]}

    def answer(self, method: str, path: str, body: Json | None) -> tuple[int, Json | str]:
        """Status and content."""
        if self.num_refusals:
            self.num_refusals -= 1
            return 503, {"message": "try again"}
        name = path.rsplit("/", 1)[1]
        if path.startswith(_RUNTIMES):
            return 200, _RUNTIME
        if path == _JOBS and method == "POST":
            assert body is not None
            self.submitted.append(body)
            return 201, self.create(body)
        if path.startswith(_JOBS):
            if method == "GET":
                self.on_look(name)
            if name not in self.jobs:
                return 404, {"message": f"{name} not found"}
            if method == "DELETE":
                self.deleted.append(name)
                return 200, self.jobs.pop(name)
            return 200, self.jobs[name]
        if path == _PODS:
            return 200, {"items": [_pod(host, phase) for host, phase in self.pods.items()]}
        if path.startswith(_PODS) and name == "log":
            return 200, self.logs.get(path.split("/")[-2], "")
        return 404, {"message": path}


@contextmanager
def served(cluster: Cluster) -> Iterator[TrainerClient]:
    """Serves a cluster on loopback; gives the SDK's client of it."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            status, content = cluster.answer(self.command, urlsplit(self.path).path, body)
            is_text = isinstance(content, str)
            sent = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if is_text else "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    configuration = Configuration(host=f"http://127.0.0.1:{server.server_port}")
    configuration.retries = False
    try:
        yield TrainerClient(KubernetesBackendConfig(namespace=NAMESPACE, client_configuration=configuration))
    finally:
        server.shutdown()
        server.server_close()


_RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {"name": "thawline-trainer-backfill", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "any"}]}}},
                        },
                    }
                ]
            }
        },
    },
}


def _pod(host: str, phase: str) -> Json:
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-completion-index": host.removeprefix("node-"),
    }
    return {
        "metadata": {"name": host, "labels": labels},
        "spec": {"containers": [{"name": "node", "image": "any"}]},
        "status": {"phase": phase},
    }
