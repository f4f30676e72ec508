"""The end of every benchmark: one JSON object, on the last line and in ``benchmarks/results/<name>.json``.

A quick run's is ``<name>_quick.json``: it never replaces the full run's figures, nor its plot.
"""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("torch", "torchrec", "fbgemm-gpu-cpu", "pyarrow", "numpy", "duckdb", "polars", "datasets")


def publish(name: str, figures: Mapping[str, Any], *, quick: bool = False) -> None:
    """Writes and prints figures, with the machine, the versions and the commit that they come from."""
    path = result_path(f"{name}.json", quick=quick)
    result = {"benchmark": path.stem, **figures, "machine": _machine(), "versions": _versions(), "commit": _commit()}
    text = json.dumps(result)
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(text, flush=True)


def result_path(name: str, *, quick: bool = False) -> Path:
    """Where a file of figures or a plot belongs."""
    path = RESULTS / name
    return path.with_stem(f"{path.stem}_quick") if quick else path


def _machine() -> dict[str, Any]:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cores": os.cpu_count(), "memory_gib": round(memory_gib, 1), "architecture": platform.machine()}


def _versions() -> dict[str, str]:
    """Of Python and of those packages that are installed: a GPU's checks run on plain torch."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _commit() -> str:
    """The commit of the checkout, marked when files were changed since; ``unknown`` outside git."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=False
    )
    return described.stdout.strip() or "unknown"
