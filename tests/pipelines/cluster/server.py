"""A server that answers as Kubeflow Pipelines' v2beta1 API does (2.17.0), over HTTP, with its state in memory.

What its Go code says is kept: snake-case fields with empty ones left out, 64-bit integers as strings,
``recurringRuns``, 1970 for times that are not yet, filters and page tokens, errors as ``google.rpc.Status`` (an
upload's as its own kind), a recurring run that takes its runs with it when it is deleted, and parameters held against
the version's inputs.
"""

import base64
import email.parser
import email.policy
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

Tree = dict[str, Any]
NEVER = "1970-01-01T00:00:00Z"
BEGIN = datetime(2024, 1, 10, 6, 0, 0, tzinfo=UTC)
OPERATIONS = {1: "EQUALS", 3: "GREATER_THAN", 5: "GREATER_THAN_EQUALS", 6: "LESS_THAN", 7: "LESS_THAN_EQUALS"}
FILTERABLE = {
    "experiments": {"display_name"},
    "pipelines": {"display_name"},
    "versions": {"display_name"},
    "runs": {"display_name", "recurring_run_id", "scheduled_at", "created_at", "state"},
    "recurringruns": {"display_name", "status"},
}
GRPC = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 500: 13, 503: 14}


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)


@dataclass
class Failure:
    """Requests to fail.

    Attributes:
        method: Of the requests.
        path: Pattern of their paths.
        status: To answer with; 0 closes the connection without a word.
        times: How many.
        is_heard: Whether the request takes effect before it fails.
        body: To answer with, and its type; None is an error as the API tells it.
    """

    method: str
    path: str
    status: int
    times: int = 1
    is_heard: bool = False
    body: str | None = None


@dataclass
class KubeflowPipelines:
    """The state of a server, and how its runs go.

    Attributes:
        token: Bearer token that requests must have; None lets everybody in.
        script: What a run is at each look at it: its state, and its tasks' names, states, starts and ends in seconds.
            The last stays.
        failures: Requests to fail.
    """

    token: str | None = None
    script: list[tuple[str, list[tuple[str, str, float, float]]]] = field(default_factory=lambda: [("SUCCEEDED", [])])
    failures: list[Failure] = field(default_factory=list)
    experiments: list[Tree] = field(default_factory=list)
    pipelines: list[Tree] = field(default_factory=list)
    versions: list[Tree] = field(default_factory=list)
    runs: list[Tree] = field(default_factory=list)
    recurringruns: list[Tree] = field(default_factory=list)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    looks: dict[str, int] = field(default_factory=dict)
    endpoint: str = ""

    def asked(self, method: str) -> list[str]:
        """Paths of the requests of a method so far."""
        return [path for found, path, _ in self.requests if found == method]

    def fire(self, recurring: Tree, at: datetime) -> Tree:
        """Begins the run of a recurring run for a time, as its controller does."""
        number = sum(run.get("recurring_run_id") == recurring["recurring_run_id"] for run in self.runs) + 1
        run = self._add_run({**recurring, "display_name": f"{recurring['display_name']}-{number}-123"}, at)
        run["recurring_run_id"] = recurring["recurring_run_id"]
        return run

    def serve_get(self, path: str, query: Tree) -> Tree:
        match path.split("/"):
            case ["experiments" | "pipelines" | "runs" | "recurringruns" as kind]:
                key = "recurringRuns" if kind == "recurringruns" else kind
                return self._list(kind, key, self._within(kind, query), query)
            case ["pipelines", pipeline, "versions"]:
                items = [version for version in self.versions if version["pipeline_id"] == pipeline]
                return self._list("versions", "pipeline_versions", items, query)
            case ["runs", run]:
                return self._look_at(self._get("run_id", run, self.runs))
            case ["recurringruns", recurring]:
                return self._get("recurring_run_id", recurring, self.recurringruns)
        raise ApiError(404, "Not Found")

    def serve_post(self, path: str, query: Tree, body: Tree, upload: str) -> Tree:
        match re.split("[/:]", path):
            case ["experiments"]:
                return self._add("experiment_id", body, self.experiments, unique=True)
            case ["pipelines"]:
                return self._add("pipeline_id", body, self.pipelines, unique=True)
            case ["pipelines", "upload_version"]:
                return self._add_version(query, upload)
            case ["runs"]:
                self._check(body)
                return self._add_run(body, BEGIN)
            case ["recurringruns"]:
                return self._add_recurring(body)
            case ["recurringruns", recurring, "enable" | "disable" as mode]:
                found = self._get("recurring_run_id", recurring, self.recurringruns)
                found |= {"status": f"{mode.upper()}D", "mode": mode.upper()}
                return {}
        raise ApiError(404, "Not Found")

    def serve_delete(self, path: str, query: Tree) -> Tree:
        match path.split("/"):
            case ["recurringruns", recurring]:
                self.recurringruns.remove(self._get("recurring_run_id", recurring, self.recurringruns))
                if query.get("propagation_policy") != "ORPHAN":
                    self.runs = [run for run in self.runs if run.get("recurring_run_id") != recurring]
                return {}
        raise ApiError(404, "Not Found")

    def _within(self, kind: str, query: Tree) -> list[Tree]:
        items: list[Tree] = getattr(self, kind)
        if kind in ("runs", "recurringruns") and query.get("experiment_id"):
            items = [item for item in items if item["experiment_id"] == query["experiment_id"]]
        if kind in ("experiments", "pipelines"):
            items = [item for item in items if item.get("namespace") == query.get("namespace")]
        return items

    def _list(self, kind: str, key: str, items: list[Tree], query: Tree) -> Tree:
        options = {name: query.get(name, "") for name in ("filter", "sort_by")}
        begin, size = 0, int(query.get("page_size") or 20)
        if query.get("page_token"):
            token = json.loads(base64.b64decode(query["page_token"]))
            if token["options"] != options:
                raise ApiError(400, "page token does not match the filter or the sorting")
            begin = token["begin"]
        predicates = json.loads(options["filter"] or "{}").get("predicates", [])
        for key_ in {predicate["key"] for predicate in predicates} - FILTERABLE[kind]:
            raise ApiError(400, f'Invalid input error: no support for filtering on unrecognized field "{key_}"')
        found = [item for item in items if all(_holds(predicate, item) for predicate in predicates)]
        if options["sort_by"] == "created_at desc":
            found.reverse()
        answer: Tree = {key: found[begin : begin + size], "total_size": len(found)}
        if begin + size < len(found):
            token = json.dumps({"begin": begin + size, "options": options})
            answer["next_page_token"] = base64.b64encode(token.encode()).decode()
        return answer

    def _get(self, key: str, identifier: str, items: list[Tree]) -> Tree:
        for item in items:
            if item[key] == identifier:
                return item
        raise ApiError(404, f"ResourceNotFoundError: {key} {identifier} not found")

    def _add(self, key: str, body: Tree, items: list[Tree], *, unique: bool = False) -> Tree:
        if not body.get("display_name"):
            raise ApiError(400, "Invalid input error: name is empty")
        same = [item for item in items if item["display_name"] == body["display_name"]]
        if unique and any(item.get("namespace") == body.get("namespace") for item in same):
            raise ApiError(409, f"Already exist error: The name {body['display_name']} already exist")
        items.append({**body, key: str(uuid.uuid4()), "created_at": _text(BEGIN)})
        return items[-1]

    def _add_version(self, query: Tree, upload: str) -> Tree:
        self._get("pipeline_id", query["pipelineid"], self.pipelines)
        specs = list(yaml.load_all(upload, yaml.CSafeLoader))
        if specs[0].get("schemaVersion") != "2.1.0":
            raise ApiError(400, "KFP only supports schema version 2.1.0")
        version = {"pipeline_id": query["pipelineid"], "display_name": query["name"], "pipeline_spec": specs[0]}
        known = [it for it in self.versions if it["pipeline_id"] == query["pipelineid"]]
        if query["name"] in [it["display_name"] for it in known]:
            raise ApiError(409, "Failed to create a pipeline version")
        return self._add("pipeline_version_id", version, self.versions)

    def _check(self, body: Tree) -> None:
        """Holds a run's parameters against what its version takes."""
        self._get("experiment_id", body.get("experiment_id", ""), self.experiments)
        reference = body["pipeline_version_reference"]
        version = self._get("pipeline_version_id", reference["pipeline_version_id"], self.versions)
        wanted = version["pipeline_spec"]["root"]["inputDefinitions"]["parameters"].keys()
        given = body["runtime_config"]["parameters"].keys()
        if wanted != given:
            raise ApiError(400, f"Invalid input error: parameters {sorted(wanted ^ given)} do not match")

    def _add_run(self, body: Tree, at: datetime) -> Tree:
        kept = ("display_name", "experiment_id", "pipeline_version_reference", "runtime_config", "service_account")
        run = self._add("run_id", {name: body[name] for name in kept if name in body}, self.runs)
        # Listings tell a run's state too; nothing looks at it in between.
        return _updated(run, {"state": "PENDING", "scheduled_at": _text(at), "finished_at": NEVER})

    def _add_recurring(self, body: Tree) -> Tree:
        self._check(body)
        if not 1 <= int(body.get("max_concurrency", 0)) <= 10:
            raise ApiError(400, "Invalid input error: Max concurrency of a recurring run must be at least 1")
        cron = body["trigger"]["cron_schedule"]["cron"]
        if not re.fullmatch(r"([0-9*/,?-]+ ){4,5}[0-9*/,?-]+", cron):
            raise ApiError(400, f"Invalid input error: Schedule cron is not a supported format: {cron}")
        recurring = self._add("recurring_run_id", body, self.recurringruns)
        return _updated(recurring, {"status": f"{body['mode']}D", "max_concurrency": str(body["max_concurrency"])})

    def _look_at(self, run: Tree) -> Tree:
        look = self.looks.get(run["run_id"], 0)
        self.looks[run["run_id"]] = look + 1
        if run["state"] in ("PENDING", "RUNNING"):
            state, tasks = self.script[min(look, len(self.script) - 1)]
            run["state"] = state
            run["run_details"] = {
                "task_details": [_task(run["run_id"], number, *it) for number, it in enumerate(tasks)]
            }
        return run


def _task(run: str, number: int, name: str, state: str, begin_s: float, end_s: float) -> Tree:
    return {
        "run_id": run,
        "task_id": f"task-{name}-{number}",
        "display_name": name,
        "state": state,
        "start_time": _text(BEGIN + timedelta(seconds=begin_s)),
        "end_time": _text(BEGIN + timedelta(seconds=end_s)) if end_s else NEVER,
    }


def _updated(item: Tree, facts: Tree) -> Tree:
    item |= facts
    return item


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _holds(predicate: Tree, item: Tree) -> bool:
    key, operation = predicate["key"], predicate["operation"]
    wanted = next(
        predicate[name]
        for name in ("stringValue", "string_value", "timestampValue", "timestamp_value")
        if name in predicate
    )
    found = item.get(key, "")
    compare: dict[str, Callable[[], bool]] = {
        "EQUALS": lambda: found == wanted,
        "GREATER_THAN": lambda: found > wanted,
        "GREATER_THAN_EQUALS": lambda: found >= wanted,
        "LESS_THAN": lambda: found < wanted,
        "LESS_THAN_EQUALS": lambda: found <= wanted,
    }
    return compare[OPERATIONS.get(operation, str(operation))]()


def _handler(state: KubeflowPipelines, lock: threading.Lock) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def log_message(self, *_: object) -> None:
            """Tests read what is on stderr."""

        def _serve(self) -> None:
            url = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                state.requests.append((self.command, url.path, self.headers.get("authorization", "")))
                failure = self._failure(url.path)
                if failure is None or failure.is_heard:
                    status, content = self._answer(url.path, dict(parse_qsl(url.query)), raw)
                if failure is None:
                    self._send(status, "application/json", json.dumps(content))
                elif failure.status:
                    body = failure.body or json.dumps(_status(failure.status, "it did not go well"))
                    self._send(failure.status, "text/html" if failure.body else "application/json", body)
                else:
                    self.close_connection = True

        def _failure(self, path: str) -> Failure | None:
            for failure in state.failures:
                if failure.times and failure.method == self.command and re.search(failure.path, path):
                    failure.times -= 1
                    return failure
            return None

        def _answer(self, path: str, query: Tree, raw: bytes) -> tuple[int, Tree]:
            place = path.partition("/apis/v2beta1/")[2]
            is_upload = "upload" in place
            try:
                self._admit()
                if self.command == "GET":
                    return 200, state.serve_get(place, query)
                if self.command == "DELETE":
                    return 200, state.serve_delete(place, query)
                body = {} if is_upload or not raw else json.loads(raw)
                return 200, state.serve_post(place, query, body, self._file(raw) if is_upload else "")
            except ApiError as error:
                if is_upload:
                    return error.status, {"error_message": error.message, "error_details": error.message}
                return error.status, _status(error.status, error.message)

        def _admit(self) -> None:
            given = self.headers.get("authorization", "")
            if state.token is not None and not given:
                raise ApiError(401, "Request header error: there is no user identity header.")
            if state.token is not None and given != f"Bearer {state.token}":
                raise ApiError(403, "User 'someone' is not authorized with reason: (request: ...)")

        def _file(self, raw: bytes) -> str:
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + raw)
            (part,) = [part for part in message.iter_parts() if part.get_param("name", header="content-disposition")]
            return bytes(part.get_payload(decode=True)).decode()

        def _send(self, status: int, type_: str, body: str) -> None:
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", type_)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def _status(status: int, message: str) -> Tree:
    detail = {"@type": "type.googleapis.com/google.rpc.Status", "code": GRPC.get(status, 2), "message": message}
    return {"error": message, "code": GRPC.get(status, 2), "message": message, "details": [detail]}


@contextmanager
def serving(state: KubeflowPipelines) -> Iterator[KubeflowPipelines]:
    """Serves a state on a free port of this machine while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state, threading.Lock()))
    state.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
