"""horo's DistributedDataParallel beside torch's own on gloo, feature by feature; and beside ranks that go away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from jobs import launcher, long, start

SCRIPT = Path(__file__).parent / "ddp_peers.py"
LIMIT_SECONDS = 120

# The folder beside this file is a namespace package of that name; it has no origin.
torch = find_spec("torch")
pytestmark = pytest.mark.skipif(
    torch is None or torch.origin is None, reason="PyTorch is not installed in this environment"
)


@pytest.mark.parametrize("count", [pytest.param(2, marks=long), 3])
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


def waiting_rank() -> None:
    import torch

    import horo.torch as hvd

    hvd.init()
    model = hvd.DistributedDataParallel(torch.nn.Linear(10, 10))
    loss = model(torch.ones(1, 10)).sum()
    if "IN_FORWARD" in os.environ:  # The second one, before which the ranks agree on new buckets.
        loss.backward()
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL if os.environ["WAY"] == "killed" else signal.SIGSTOP)
    if os.environ["WAY"] == "interrupted":
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        model(torch.ones(1, 10)) if "IN_FORWARD" in os.environ else loss.backward()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        os._exit(0)
    except hvd.HorovodInternalError as error:
        print("lost", error.lost_ranks, flush=True)


def test_a_backward_pass_ends_when_a_rank_is_killed() -> None:
    job = start(2, waiting_rank, WAY="killed")
    assert job.wait() == [0, -signal.SIGKILL]
    assert job.outputs[0].strip() == "lost (1,)"


@pytest.mark.parametrize("where", [{}, {"IN_FORWARD": "1"}], ids=["backward", "forward"])
def test_a_pass_ends_with_ctrl_c(where: dict[str, str]) -> None:
    job = start(2, waiting_rank, WAY="interrupted", **where)
    try:
        assert job.line(0) == "interrupted"
    finally:
        job.ranks[1].kill()
    assert job.wait() == [0, -signal.SIGKILL]
