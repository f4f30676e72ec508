"""An HTTP proxy before a storage server that does to requests what networks and clouds do, by seed, and counts it.

It is a process of its own, ``python -m tests.faults.proxy``: Arrow holds Python's lock while it opens an object.
What happens to a request is drawn from the seed, the request and how often it came before, so that threads that change
places change nothing. A request meets at most `max_in_a_row` faults one after another: who tries again gets through.
"""

import hashlib
import json
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

PASSING = ("429", "503", "reset", "lost answer", "truncated", "slow", "hang")
"""What goes away when one tries again."""

REPOSITORY = Path(__file__).parents[2]
_CONTROL = "/weather"
_STATUS = {"429": 429, "503": 503, "401": 401, "403": 403, "404": 404}
_RANDOM_NAME = re.compile(r"[0-9a-f]{8,}")
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
_SLOW_S = 0.4


@dataclass(kw_only=True)
class Weather:
    """What the proxy does.

    Attributes:
        seed: Of the draws.
        kinds: Faults to choose from.
        rate: Share of requests that meet one.
        max_in_a_row: Most faults that one request meets before it passes.
        hang_s: How long a hanging response is silent before the connection dies.
        only: Requests that this does not match pass.
    """

    seed: int
    kinds: Sequence[str] = PASSING
    rate: float = 1 / 3
    max_in_a_row: int = 2
    hang_s: float = 2.0
    only: str = ""


class Storm:
    """A running proxy.

    Args:
        url: Where it listens.
        weather: What it does.
    """

    def __init__(self, url: str, weather: Weather) -> None:
        self.url, self.weather = url, weather

    @property
    def injected(self) -> Counter[str]:
        """What it did so far, by fault."""
        with urllib.request.urlopen(self.url + _CONTROL, timeout=60) as answer:
            return Counter(json.load(answer))

    def change(self, **fields: object) -> None:
        """Changes the weather."""
        self.weather = replace(self.weather, **fields)  # type: ignore[arg-type]
        body = json.dumps(asdict(self.weather)).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + _CONTROL, body, method="PUT"), timeout=60):
            pass


@contextmanager
def proxied(server: str, weather: Weather) -> Iterator[Storm]:
    """Runs a proxy before `server`."""
    command = [sys.executable, "-m", "tests.faults.proxy", server, json.dumps(asdict(weather))]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Storm(process.stdout.readline().strip(), weather)
        finally:
            process.kill()


class _Dice:
    """Draws and counts faults; for many threads."""

    def __init__(self, weather: Weather) -> None:
        self.weather = weather
        self.injected: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._row: Counter[str] = Counter()
        self._lock = threading.Lock()

    def draw(self, request: str) -> str | None:
        """The fault that this request meets."""
        weather, name = self.weather, _RANDOM_NAME.sub("x", request)
        with self._lock:
            self._seen[name] += 1
            digest = hashlib.sha256(f"{weather.seed} {name} {self._seen[name]}".encode()).digest()
            is_struck = int.from_bytes(digest[:4]) / 2**32 < weather.rate and self._row[name] < weather.max_in_a_row
            if not is_struck or not re.search(weather.only, request):
                self._row[name] = 0
                return None
            self._row[name] += 1
            kind = weather.kinds[digest[4] % len(weather.kinds)]
            self.injected[kind] += 1
            return kind


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, server: str, weather: Weather) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.dice = server, _Dice(weather)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def _pass(self) -> None:
        body = self._body()
        if self.path == _CONTROL:
            return self._control(body)
        weather = self.server.dice.weather
        fault = self.server.dice.draw(f"{self.command} {self.path} {self.headers.get('Range', '')}")
        if fault in _STATUS:
            return self._refuse(_STATUS[fault])
        if fault == "reset":
            return self._reset()
        if fault == "hang":
            time.sleep(weather.hang_s)
            return self._reset()
        try:
            answer, content = self._forward(body)
        except (OSError, HTTPException):
            return self._reset()
        if fault == "lost answer":
            return self._reset()
        self._answer(answer, content, fault)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _forward(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        address = urlsplit(self.server.upstream)
        assert address.hostname is not None
        connection = HTTPConnection(address.hostname, address.port, timeout=30)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _answer(self, answer: HTTPResponse, content: bytes, fault: str | None) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value.replace(self.server.upstream, self.server.url))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = len(content) // 2
        with suppress(OSError):
            if fault == "truncated":
                self.wfile.write(content[:half])
                return self._reset()
            if fault == "slow":
                self.wfile.write(content[:half])
                time.sleep(_SLOW_S)
                content = content[half:]
            if self.command != "HEAD":
                self.wfile.write(content)

    def _control(self, body: bytes) -> None:
        if body:
            self.server.dice.weather = Weather(**json.loads(body))
        self._say(200, json.dumps(self.server.dice.injected).encode())

    def _refuse(self, status: int) -> None:
        self._say(status, b'{"error": {"code": %d, "message": "injected", "errors": []}}' % status)

    def _say(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(content)

    def _reset(self) -> None:
        """Ends the connection as a machine does that is gone: with a reset, nothing said."""
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def main(server: str, weather: str) -> None:
    """Serves until it is killed; says where on its first line."""
    proxy = _Proxy(server, Weather(**json.loads(weather)))
    print(proxy.url, flush=True)
    proxy.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
