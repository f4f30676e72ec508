from pathlib import Path

import pytest
import torch

from benchmarks.overlap import measure_overlap


@pytest.mark.gpu
def test_lookups_run_beside_the_network(gpu: torch.device, tmp_path: Path) -> None:
    found = measure_overlap(tmp_path / "trace.json")
    assert found["overlapped_share"] > 0, found
