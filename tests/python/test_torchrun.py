"""init() under torchrun: real agents, on one host and as if on two."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import launched
import numpy as np
import pytest
from jobs import free_port

import horo

pytest.importorskip("torch", reason="torchrun comes with torch")


def trains() -> None:
    import torch

    import horo.torch as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    assert rank == int(os.environ["RANK"])
    assert size == int(os.environ["WORLD_SIZE"])
    assert hvd.local_rank() == int(os.environ["LOCAL_RANK"])
    assert hvd.allreduce(torch.ones(5) * rank, op=hvd.Sum).tolist() == [sum(range(size))] * 5
    assert not hvd.mpi_enabled()
    # The same job once more: key and address are known.
    hvd.shutdown()
    hvd.init()
    assert hvd.allreduce(torch.ones(5) * rank, op=hvd.Sum).tolist() == [sum(range(size))] * 5
    folder = os.path.join(os.environ["TMPDIR"], f"horo-{os.geteuid()}")
    hvd.barrier()
    assert not os.path.isdir(folder) or not os.listdir(folder), "the key was left behind"
    hvd.barrier()  # What follows leaves another one there for a moment.
    # Only some of the processes are a job.
    hvd.shutdown()
    if rank in (1, size - 1):
        hvd.init(comm=[size - 1, 1] if size > 2 else [1])
        assert hvd.size() == (2 if size > 2 else 1)
        assert hvd.rank() == (0 if rank == size - 1 else 1)
        assert hvd.allreduce(torch.ones(1) * rank, op=hvd.Sum).item() == (size - 1 + 1 if size > 2 else 1)
    print(f"rank {rank} of {size} is done", flush=True)


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_of_one_host_meet_without_being_told_anything(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        said = launched.torchrun(["--standalone", "--nproc-per-node", str(count)], trains, TMPDIR=folder)
    for rank in range(count):
        assert f"rank {rank} of {count} is done" in said


def fails_once() -> None:
    horo.init()
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    total = horo.allreduce(np.ones(3), op=horo.Sum)
    assert total.tolist() == [2, 2, 2]
    if restarts == "0" and horo.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    # The other rank is killed by its agent, or told by horo that rank 1 is gone.
    horo.allreduce(np.ones(3), op=horo.Sum)
    print(f"rank {horo.rank()} is done after {restarts} restarts", flush=True)


def test_ranks_meet_again_when_the_agent_starts_them_again() -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
        said = launched.torchrun(flags, fails_once, TMPDIR=folder)
    for rank in range(2):
        assert f"rank {rank} is done after 1 restarts" in said


def sums() -> None:
    horo.init()
    assert horo.allreduce(np.ones(3), op=horo.Sum).tolist() == [horo.size()] * 3
    print(f"rank {horo.rank()} of {horo.size()} is done", flush=True)


def on_two_hosts(**settings: str) -> str:
    """Two agents with a rank each, as on two hosts."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "two"]
    with launched.script_file(sums) as path:
        agents = [launched.start([*command, *meeting], path, **settings) for _ in range(2)]
        try:
            return "\n".join(agent.communicate(timeout=100)[0] for agent in agents)
        finally:
            for agent in agents:
                agent.kill()


def test_ranks_on_several_hosts_need_a_key_or_trust() -> None:
    with tempfile.TemporaryDirectory() as folder:
        refused = on_two_hosts()
        assert "HORO_KEY_FILE" in refused
        assert "HORO_TRUST_STORE=1" in refused
        assert "is done" not in refused
        key = Path(folder) / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        for settings in ({"HORO_KEY_FILE": str(key)}, {"HORO_TRUST_STORE": "1"}):
            said = on_two_hosts(HORO_INTERFACE="127.0.0.1", **settings)
            for rank in range(2):
                assert f"rank {rank} of 2 is done" in said, said
