"""A client of Kubeflow Pipelines' v2beta1 API: asks again where that may help, and tells errors in one line.

It drives the generated `kfp_server_api` itself. `kfp.Client` wraps the same, but reads its settings from the
environment and from a file in the home folder, prints as it goes, and leaves paging and errors to its caller.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import kfp_server_api
import urllib3
from urllib3.exceptions import HTTPError

from pipelines.errors import RunFailedError
from trainer.errors import InputError

POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
"""Where a pod that may call the API finds its account's token; it is renewed there."""

_WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0)
_TIMEOUTS_S = (10, 60)  # to connect, to answer
_PAGE_SIZE = 100
_TRANSIENT = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where Kubeflow Pipelines is, and who asks.

    Attributes:
        endpoint: URL of its API or of its web pages, which pass the API on.
        token_file: Holds a bearer token; read for each request, since tokens are renewed.
        ca_file: Certificates that it is verified by; None are those that Python brings.
        namespace: The profile to work in, where there are several users; None where there are not.
        waits_s: Seconds before each further try of a request that failed for now.
    """

    endpoint: str
    token_file: Path | None = None
    ca_file: Path | None = None
    namespace: str | None = None
    waits_s: tuple[float, ...] = _WAITS_S

    def __post_init__(self) -> None:
        if not self.endpoint.startswith(("http://", "https://")):
            raise InputError(f"--endpoint {self.endpoint}: no URL; write it as http://HOST:PORT or https://HOST")
        for option, path in (("--token-file", self.token_file), ("--ca-file", self.ca_file)):
            if path is not None and not path.is_file():
                raise InputError(f"{option} {path}: no such file; name one that is there")

    def page(self, kind: str, identifier: str) -> str:
        """The web page of a thing, e.g. of a run: ``page("runs", run_id)``."""
        return f"{self.endpoint.rstrip('/')}/#/{kind}/details/{identifier}"


class Client:
    """Calls the API.

    Args:
        server: Where it is.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._api = kfp_server_api.ApiClient(_configuration(server))
        self.experiments = kfp_server_api.ExperimentServiceApi(self._api)
        self.pipelines = kfp_server_api.PipelineServiceApi(self._api)
        self.uploads = kfp_server_api.PipelineUploadServiceApi(self._api)
        self.runs = kfp_server_api.RunServiceApi(self._api)
        self.recurring_runs = kfp_server_api.RecurringRunServiceApi(self._api)

    def call(self, what: str, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Calls a method that may be called twice to the same effect.

        Args:
            what: What it does, for people: an infinitive.
            method: Of one of the services.
            *arguments: Its arguments.
            **options: Its options.

        Raises:
            InputError: The server refuses; the line says what to mend.
            RunFailedError: It cannot be reached, or fails each time.
        """
        for wait_s in self.server.waits_s:
            try:
                return self._once(what, method, *arguments, **options)
            except _TransientError:
                time.sleep(wait_s)
        try:
            return self._once(what, method, *arguments, **options)
        except _TransientError as error:
            raise RunFailedError(str(error)) from None

    def find_or_make(
        self, what: str, find: Callable[[], T | None], method: Callable[..., T], *arguments: Any, **options: Any
    ) -> tuple[T, bool]:
        """Makes what is not there yet. A try that seems to have failed may have been heard: it is looked for again.

        Args:
            what: What the method does, for people: an infinitive.
            find: Looks for what it makes.
            method: Of one of the services.
            *arguments: Its arguments.
            **options: Its options.

        Returns:
            What is there now, and whether it was made here.

        Raises:
            InputError: The server refuses; the line says what to mend.
            RunFailedError: It cannot be reached, or fails each time.
        """
        last: Exception | None = None
        for wait_s in (0.0, *self.server.waits_s):
            time.sleep(wait_s)
            found = find()
            if found is not None:
                return found, False
            try:
                return self._once(what, method, *arguments, **options), True
            except (_TransientError, _ConflictError) as error:
                last = error
        raise RunFailedError(str(last)) from None

    def list(self, what: str, method: Callable[..., Any], items: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        """All items of a listing, page by page.

        Args:
            what: What is listed, for people: an infinitive.
            method: Of one of the services.
            items: Attribute of its answer that holds a page.
            *arguments: Its arguments.
            **options: Its options, such as a filter.
        """
        token = ""
        while True:
            page = self.call(what, method, *arguments, page_size=_PAGE_SIZE, page_token=token, **options)
            yield from getattr(page, items) or ()
            token = page.next_page_token or ""
            if not token:
                return

    def _once(self, what: str, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        self._api.last_response = None
        endpoint = self.server.endpoint
        try:
            answer = method(*arguments, **options, _request_timeout=_TIMEOUTS_S)
        except InputError:  # of the token's file
            raise
        except kfp_server_api.ApiException as error:
            raise _told(endpoint, what, error) from None
        except HTTPError as error:
            # What the pool wraps says more than that it gave up.
            reason = " ".join(str(getattr(error, "reason", None) or error).split())
            raise _TransientError(f"{endpoint}: cannot be reached ({reason}); check --endpoint and --ca-file") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise _strange(endpoint, what) from error
        if not _is_json(self._api.last_response):
            raise _strange(endpoint, what)
        return answer


def where(**equal: str) -> str:
    """A listing's filter: fields that equal a text."""
    return predicates(*(("EQUALS", key, {"stringValue": value}) for key, value in equal.items()))


def predicates(*parts: tuple[str, str, Mapping[str, str]]) -> str:
    """A listing's filter: operation, field and value of each condition, all of which hold."""
    return json.dumps({"predicates": [{"operation": name, "key": key, **value} for name, key, value in parts]})


def one_of(items: Sequence[T] | Iterator[T]) -> T | None:
    """The first of some items, or None."""
    return next(iter(items), None)


class _TransientError(Exception):
    """It may go well when it is tried again."""


class _ConflictError(Exception):
    """Someone else made the same meanwhile."""


def _configuration(server: Server) -> kfp_server_api.Configuration:
    configuration = kfp_server_api.Configuration(host=server.endpoint.rstrip("/"))
    configuration.ssl_ca_cert = None if server.ca_file is None else str(server.ca_file)
    # Trying again is up to `Client`; a redirection leads to a page to sign in at, which is no answer.
    configuration.retries = urllib3.Retry(0, redirect=0, raise_on_redirect=False)
    token_file = server.token_file or (POD_TOKEN if POD_TOKEN.is_file() else None)
    if token_file is not None:

        def renew(configuration: kfp_server_api.Configuration) -> None:
            try:
                configuration.api_key["authorization"] = token_file.read_text().strip()
            except OSError as error:
                raise InputError(f"--token-file {token_file}: cannot be read ({error.strerror}); mend that") from None

        configuration.api_key_prefix["authorization"] = "Bearer"
        configuration.refresh_api_key_hook = renew
        renew(configuration)
    return configuration


def _is_json(response: Any) -> bool:
    """Whether the last answer was JSON: the generated client takes a web page for an empty answer."""
    if response is None:
        return True
    try:
        return isinstance(json.loads(response.data), dict)
    except ValueError:
        return False


def _strange(endpoint: str, what: str) -> InputError:
    return InputError(
        f"{endpoint}: does not answer as Kubeflow Pipelines does when asked to {what}; check --endpoint, and whether "
        "it wants a --token-file"
    )


def _told(endpoint: str, what: str, error: kfp_server_api.ApiException) -> Exception:
    """What to raise for an answer that is an error."""
    status, message = error.status, _message(error)
    if status in _TRANSIENT:
        return _TransientError(f"{endpoint}: failed to {what}, asked several times ({status}: {message})")
    if status == HTTPStatus.CONFLICT:
        return _ConflictError(f"{endpoint}: failed to {what}: it is there and is not ({message})")
    if status == HTTPStatus.UNAUTHORIZED or 300 <= status < 400:
        return InputError(f"{endpoint}: wants to know who asks to {what} ({status}: {message}); name a --token-file")
    if status == HTTPStatus.FORBIDDEN:
        return InputError(
            f"{endpoint}: this account may not {what} ({message}); give it the right to, or name another --token-file"
        )
    if status == HTTPStatus.NOT_FOUND:
        return InputError(f"{endpoint}: cannot {what}: not found ({message}); check --endpoint and --namespace")
    return InputError(f"{endpoint}: refuses to {what} ({status}: {message}); mend what it names")


def _message(error: kfp_server_api.ApiException) -> str:
    """The server's own words, on one line."""
    text = error.body if isinstance(error.body, str) else ""
    try:
        body = json.loads(text)
        text = body.get("message") or body.get("error_message") or body.get("error") or ""
    except (ValueError, AttributeError):
        text = "" if "<" in text else text  # a web page
    return " ".join(str(text or error.reason or "no reason given").split())[:300]
