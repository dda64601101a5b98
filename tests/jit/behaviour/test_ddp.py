"""DistributedDataParallel over two processes: bit for bit eager's parameters after 20 steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this build of PyTorch has no torch.distributed"
)
def test_two_processes_train_as_eager_does() -> None:
    worker = Path(__file__).with_name("ddp_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    run = subprocess.run(
        [*command, str(worker)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    reports = json.loads(run.stdout.splitlines()[-1])
    assert [report["rank"] for report in reports] == [0, 1]
    for report in reports:
        assert report["moved"]
        assert report["different"] == []
