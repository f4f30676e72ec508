"""Two hosts on one machine: network namespaces joined by a link of a chosen bandwidth.

Namespaces and links want root. Without it the two ranks share loopback, which no one can slow down.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_ADDRESSES = ("10.77.0.1", "10.77.0.2")
_BURST_BYTES = 32 * 1024
_LATENCY_MS = 10  # of what may queue: more, and small messages would wait behind whole exchanges


@dataclass(frozen=True)
class Hosts:
    """Where ranks run.

    Attributes:
        link: Whether a link of a chosen bandwidth joins them; otherwise they share loopback.
        why_not: Why there is none.
    """

    link: bool
    why_not: str = ""

    def start(self, rank: int, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Starts ``python -m ARGUMENTS`` as one rank of two, which torch.distributed finds through the environment."""
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
        environment |= {"MASTER_ADDR": _ADDRESSES[0] if self.link else "127.0.0.1", "MASTER_PORT": str(_PORT)}
        environment |= {"GLOO_SOCKET_IFNAME": _device(rank) if self.link else "lo"}
        prefix = ["ip", "netns", "exec", _name(rank)] if self.link else []
        return subprocess.Popen([*prefix, sys.executable, "-m", *arguments], env=environment)


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Makes the namespaces and the link, if this machine lets us, and takes them away again."""
    why_not = _make()
    try:
        yield Hosts(link=not why_not, why_not=why_not)
    finally:
        _remove()


def limit_bandwidth(rank: int, bytes_per_s: float) -> None:
    """Limits what a rank, called from within it, may send."""
    rate = f"{max(1, round(bytes_per_s * 8))}bit"
    limit = ["rate", rate, "burst", str(_BURST_BYTES), "latency", f"{_LATENCY_MS}ms"]
    _run("tc", "qdisc", "replace", "dev", _device(rank), "root", "tbf", *limit)


def _make() -> str:
    if os.geteuid() != 0:
        return "network namespaces want root"
    _remove()
    try:
        for rank in range(2):
            _run("ip", "netns", "add", _name(rank))
        _run("ip", "link", "add", _device(0), "type", "veth", "peer", "name", _device(1))
        for rank in range(2):
            _run("ip", "link", "set", _device(rank), "netns", _name(rank))
            within = ["ip", "netns", "exec", _name(rank), "ip"]
            _run(*within, "addr", "add", f"{_ADDRESSES[rank]}/24", "dev", _device(rank))
            _run(*within, "link", "set", _device(rank), "up")
            _run(*within, "link", "set", "lo", "up")
            # A segment of 64 KiB would leave no room in the limit's burst.
            _run("ip", "netns", "exec", _name(rank), "ip", "link", "set", _device(rank), "gso_max_size", "16384")
    except (OSError, subprocess.CalledProcessError) as error:
        _remove()
        return f"no network namespaces here ({error})"
    return ""


def _remove() -> None:
    for rank in range(2):
        subprocess.run(["ip", "netns", "delete", _name(rank)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", _device(rank)], capture_output=True, check=False)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _name(rank: int) -> str:
    return f"thawline{rank}"


def _device(rank: int) -> str:
    return f"thaw{rank}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_PORT = _free_port()
