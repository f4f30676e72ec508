"""Two hosts on one machine: network namespaces joined by a link of a chosen bandwidth.

Namespaces and links want root. Without it the two ranks share loopback, which no one can slow down.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist

_ADDRESSES = ("10.77.0.1", "10.77.0.2")
_BURST_BYTES = 32 * 1024
_LATENCY_MS = 1000  # of what may queue before packets are dropped
# A link's queue is one for all: a small message must not wait behind all of a large one, nor begin slowly each time.
_SOCKETS = ("net.ipv4.tcp_wmem=4096 16384 32768", "net.ipv4.tcp_slow_start_after_idle=0")


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Where ranks run.

    Attributes:
        link: Whether a link of a chosen bandwidth joins them; otherwise they share loopback.
        why_not: Why there is none.
    """

    link: bool
    why_not: str = ""

    def address(self, rank: int) -> str:
        """Of the host of a rank."""
        return _ADDRESSES[rank] if self.link else "127.0.0.1"

    def device(self, rank: int) -> str:
        """Name of the network device of that host."""
        return _device(rank) if self.link else "lo"

    def within(self, rank: int) -> list[str]:
        """What comes before a command that runs on that host."""
        return ["ip", "netns", "exec", _name(rank)] if self.link else []


def run_ranks(
    module: str, arguments: Sequence[str] = (), *, number: int = 2, wants_link: bool = True
) -> tuple[list[dict[str, Any]], Hosts]:
    """Runs ``python -m MODULE --rank-of PATH ARGUMENTS`` as ranks that torch.distributed finds in the environment.

    Two ranks are put on two hosts where this machine lets us (``--has-link`` tells them so); otherwise they share
    loopback.

    Args:
        module: Its ranks leave what they found as JSON by `report_rank`.
        arguments: Of each rank.
        number: Of ranks.
        wants_link: Whether two ranks are put on two hosts.

    Returns:
        What they left, by rank, and where they ran.
    """
    with two_hosts() if wants_link else nullcontext(_LOOPBACK) as hosts, tempfile.TemporaryDirectory() as folder:
        if wants_link and not hosts.link:
            print(f"no link between two hosts: {hosts.why_not}; measuring on loopback", file=sys.stderr)
        out = Path(folder) / "found"
        command = [module, "--rank-of", str(out), *arguments, *(["--has-link"] if hosts.link else [])]
        port = _free_port()
        ranks = [_start(hosts, rank, number, port, command) for rank in range(number)]
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            sys.exit(f"{module}: a rank failed (exit codes {codes}); see its traceback above")
        return [json.loads(out.with_suffix(f".{rank}").read_text()) for rank in range(number)], hosts


def add_rank_options(parser: argparse.ArgumentParser) -> None:
    """What `run_ranks` adds to a rank's command line."""
    parser.add_argument("--rank-of", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--has-link", action="store_true", help=argparse.SUPPRESS)


def report_rank(out: Path, found: Mapping[str, Any]) -> NoReturn:
    """Leaves what this rank found, and ends it: pipelines hold batches that they read ahead, and wait for no one."""
    out.with_suffix(f".{dist.get_rank()}").write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def _start(hosts: Hosts, rank: int, number: int, port: int, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(number), "LOCAL_RANK": str(rank)}
    environment |= {"MASTER_ADDR": hosts.address(0), "MASTER_PORT": str(port)}
    environment |= {"GLOO_SOCKET_IFNAME": hosts.device(rank), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*hosts.within(rank), sys.executable, "-m", *command], env=environment)


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
            _run(*within, "link", "set", _device(rank), "gso_max_size", "16384")
            for setting in _SOCKETS:
                _run("ip", "netns", "exec", _name(rank), "sysctl", "-qw", setting)
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


_LOOPBACK = Hosts(link=False, why_not="not asked for")
