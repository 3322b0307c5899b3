"""horo's DistributedDataParallel gives what torch's own on gloo gives, feature by feature."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from jobs import launcher

SCRIPT = Path(__file__).parent / "ddp_peers.py"
LIMIT_SECONDS = 120

# The folder beside this file is a namespace package of that name; it has no origin.
torch = find_spec("torch")
pytestmark = pytest.mark.skipif(
    torch is None or torch.origin is None, reason="PyTorch is not installed in this environment"
)


@pytest.mark.parametrize("count", [2, 3])
def test_both_train_alike(count: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [launcher(), "run", "-np", str(count), sys.executable, "-u", str(SCRIPT), str(tmp_path / "store")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HORO_STALL_WARNING": "10", "HORO_STALL_ABORT": "30"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(count):
        assert f"rank {rank}: all " in done.stdout, done.stdout
