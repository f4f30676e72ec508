"""The client against answers as they come: pages, tokens, refusals, servers that are no such server."""

import socket
from pathlib import Path

import pytest
from kfp_server_api import V2beta1Experiment

from pipelines.cluster.client import Client, Server, where
from pipelines.cluster.uploads import ensure_experiment
from pipelines.errors import RunFailedError
from tests.pipelines.cluster.server import Failure, KubeflowPipelines
from trainer.errors import InputError


def names(client: Client, **options: str) -> list[str]:
    method = client.experiments.experiment_service_list_experiments
    return [found.display_name for found in client.list("list experiments", method, "experiments", **options)]


def make(client: Client, name: str) -> str:
    method = client.experiments.experiment_service_create_experiment
    made = client.call(f"make {name}", method, V2beta1Experiment(display_name=name))
    return str(made.experiment_id)


def test_a_listing_is_read_to_its_last_page(server: KubeflowPipelines, client: Client) -> None:
    wanted = [f"experiment {number}" for number in range(250)]
    for name in wanted:
        server.experiments.append({"experiment_id": name, "display_name": name})
    assert names(client) == wanted
    assert len(server.asked("GET")) == 3
    assert names(client, filter=where(display_name="experiment 7")) == ["experiment 7"]
    assert names(client, filter=where(display_name="none")) == []


def test_an_unknown_field_of_a_filter_is_told(client: Client) -> None:
    with pytest.raises(InputError, match=r"refuses to list experiments \(400: .*unrecognized field \"colour\""):
        names(client, filter=where(colour="blue"))


def test_a_token_is_read_anew_for_each_request(server: KubeflowPipelines, tmp_path: Path) -> None:
    server.token, file = "first", tmp_path / "token"
    file.write_text("first\n")
    client = Client(Server(endpoint=server.endpoint, token_file=file, waits_s=()))
    assert names(client) == []
    server.token = "second"
    with pytest.raises(InputError, match=r"this account may not list experiments.*--token-file"):
        names(client)
    file.write_text("second")
    assert names(client) == []
    assert [authorization for _, _, authorization in server.requests] == ["Bearer first"] * 2 + ["Bearer second"]
    file.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        names(client)


def test_who_has_no_token_is_told(server: KubeflowPipelines, client: Client) -> None:
    server.token = "secret"
    with pytest.raises(InputError, match=r"wants to know who asks .*\(401: .*name a --token-file"):
        names(client)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (302, InputError, "wants to know who asks"),
        (400, InputError, r"refuses to list experiments \(400: it did not go well\)"),
        (403, InputError, "this account may not list experiments"),
        (404, InputError, "not found .*check --endpoint and --namespace"),
        (500, RunFailedError, r"failed to list experiments, asked several times \(500: it did not go well\)"),
        (503, RunFailedError, "503"),
    ],
)
def test_an_error_is_one_line(
    server: KubeflowPipelines, client: Client, status: int, kind: type[Exception], told: str
) -> None:
    server.failures = [Failure("GET", "experiments", status, times=9)]
    with pytest.raises(kind, match=told) as caught:
        names(client)
    line = str(caught.value)
    assert "\n" not in line and line.startswith(server.endpoint)
    assert len(server.requests) == (3 if status >= 500 else 1)


def test_what_fails_for_now_is_tried_again(server: KubeflowPipelines, client: Client) -> None:
    server.failures = [Failure("GET", "experiments", 503), Failure("GET", "experiments", 0)]
    assert names(client) == []
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [500, 0], ids=["an error", "silence"])
def test_what_was_heard_is_not_made_twice(server: KubeflowPipelines, client: Client, status: int) -> None:
    server.failures = [Failure("POST", "experiments", status, is_heard=True)]
    made = ensure_experiment(client, "mine")
    assert [found["experiment_id"] for found in server.experiments] == [made]
    assert len(server.asked("POST")) == 1


def test_what_was_not_heard_is_made(server: KubeflowPipelines, client: Client) -> None:
    server.failures = [Failure("POST", "experiments", 500)]
    made = ensure_experiment(client, "mine")
    assert [found["experiment_id"] for found in server.experiments] == [made]
    assert len(server.asked("POST")) == 2


def test_what_someone_else_made_meanwhile_is_taken(server: KubeflowPipelines, client: Client) -> None:
    other = make(client, "mine")
    looks = iter([None, "there"])

    def find() -> object | None:
        return next(looks)

    found, is_new = client.find_or_make(
        "make mine",
        find,
        client.experiments.experiment_service_create_experiment,
        V2beta1Experiment(display_name="mine"),
    )
    assert (found, is_new) == ("there", False)
    assert [it["experiment_id"] for it in server.experiments] == [other]


def test_a_page_for_people_is_no_answer(server: KubeflowPipelines, client: Client) -> None:
    server.failures = [Failure("GET", "experiments", 200, body="<html>Sign in</html>")]
    with pytest.raises(InputError, match="does not answer as Kubeflow Pipelines does when asked to list experiments"):
        names(client)


@pytest.mark.parametrize("body", ["[1, 2]", '{"experiments": 7}', "null"])
def test_json_that_is_no_answer_is_told(server: KubeflowPipelines, client: Client, body: str) -> None:
    server.failures = [Failure("GET", "experiments", 200, body=body)]
    with pytest.raises(InputError, match="does not answer as Kubeflow Pipelines does"):
        names(client)


def test_a_server_that_is_not_there_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RunFailedError, match=rf"http://127.0.0.1:{port}: cannot be reached \(.*check --endpoint"):
        names(Client(Server(endpoint=f"http://127.0.0.1:{port}", waits_s=(0.0,))))


def test_a_certificate_that_nobody_vouches_for_is_told(server: KubeflowPipelines) -> None:
    with pytest.raises(RunFailedError, match=r"cannot be reached .*--ca-file"):
        names(Client(Server(endpoint=server.endpoint.replace("http", "https"), waits_s=())))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endpoint": "localhost:8080"}, "--endpoint localhost:8080: no URL"),
        ({"endpoint": "http://x", "token_file": Path("nowhere")}, "--token-file nowhere: no such file"),
        ({"endpoint": "http://x", "ca_file": Path("nowhere")}, "--ca-file nowhere: no such file"),
    ],
)
def test_a_server_that_cannot_be_is_told(options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Server(**options)  # type: ignore[arg-type]


def test_a_profile_is_named_where_there_are_several(server: KubeflowPipelines) -> None:
    client = Client(Server(endpoint=server.endpoint, namespace="team", waits_s=()))
    ensure_experiment(client, "mine")
    assert server.experiments[0]["namespace"] == "team"
    assert ensure_experiment(client, "mine") == server.experiments[0]["experiment_id"]
