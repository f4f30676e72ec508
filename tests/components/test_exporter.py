import json
import os
import socket
import urllib.request
from pathlib import Path

from components.exporter import serve


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def record(store: Path, run: str, recipe: str, decision: str, *, at_s: float) -> None:
    path = store / "runs" / run / "summary.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"model": f"thawline-{recipe}", "decision": decision}))
    os.utime(path, (at_s, at_s))


def scrape(port: int) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return {line for line in answer.read().decode().splitlines() if not line.startswith("#")}


def test_decisions_on_record_are_counted(tmp_path: Path) -> None:
    port = free_port()
    serve(tmp_path, port)
    assert scrape(port) == set()
    record(tmp_path, "feed-2024-01-08", "feed", "hold", at_s=1000.0)
    record(tmp_path, "feed-2024-01-09", "feed", "promote", at_s=3000.0)
    record(tmp_path, "feed-2024-01-10", "feed", "hold", at_s=2000.0)
    record(tmp_path, "other-2024-01-10", "other", "reject", at_s=1.0)
    assert scrape(port) == {
        'thawline_decisions_total{decision="hold",recipe="feed"} 2.0',
        'thawline_decisions_total{decision="promote",recipe="feed"} 1.0',
        'thawline_decisions_total{decision="reject",recipe="other"} 1.0',
        'thawline_last_success_timestamp_seconds{recipe="feed"} 3000.0',
        'thawline_last_success_timestamp_seconds{recipe="other"} 1.0',
    }
