"""The tests of tests/python/torch inside jobs of 1, 2, 3 and 4 ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest

SUITE = Path(__file__).parent / "torch"
LIMIT_SECONDS = 240

# The folder beside this file is a namespace package of that name; it has no origin.
torch = find_spec("torch")
pytestmark = pytest.mark.skipif(
    torch is None or torch.origin is None, reason="PyTorch is not installed in this environment"
)


def run_suite(count: int, *arguments: str) -> tuple[int, str]:
    """The exit code and what the ranks said. A job that takes too long is killed, and says how far it was."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    # A rank that waits for one that went another way must not wait for ever.
    settings = {"TORCH_SUITE": "1", "HORO_STALL_ABORT": "60", "HORO_STALL_WARNING": "10", "OMP_NUM_THREADS": "1"}
    # -x: a rank that fails ends, or the others would wait for it in the next operation.
    suite = [sys.executable, "-u", "-m", "pytest", "-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
    job = subprocess.Popen(
        [jobs.launcher(), "run", "-np", str(count), *suite, *arguments],
        env={**inherited, **settings},
        cwd=SUITE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = job.communicate(timeout=LIMIT_SECONDS)[0]
    except subprocess.TimeoutExpired:
        job.send_signal(signal.SIGTERM)  # The launcher ends its ranks.
        output = f"{job.communicate(timeout=60)[0]}\nkilled after {LIMIT_SECONDS} s"
    return job.returncode, output


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_torch_suite_passes_on_ranks(count: int) -> None:
    code, output = run_suite(count, str(SUITE))
    assert code == 0, output
    passed = [line for line in output.splitlines() if " passed" in line]
    assert len(passed) == count, output
