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
        hvd.init(comm=[size - 1, 1])
        assert hvd.size() == 2
        assert hvd.rank() == (0 if rank == size - 1 else 1)
        assert hvd.allreduce(torch.ones(1) * rank, op=hvd.Sum).item() == size - 1 + 1
    print(f"rank {rank} of {size} is done", flush=True)


def test_ranks_of_one_host_meet_without_being_told_anything() -> None:
    count = 3  # Two of them are a job of their own in the end.
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


def joins_in_three_ways() -> None:
    """A rank on one of two hosts, as three processes after each other that its launcher could have started."""
    import subprocess

    program = """
import horo, numpy
horo.init()
assert horo.allreduce(numpy.ones(3), op=horo.Sum).tolist() == [2, 2, 2]
print("done as rank", horo.rank(), "of", horo.size())
"""
    ways = {"told nothing": {}, "a key": {"HORO_KEY_FILE": os.environ["THE_KEY"]}, "trust": {"HORO_TRUST_STORE": "1"}}
    for way, settings in ways.items():
        environment = {**os.environ, **settings}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
        words = (done.stdout + done.stderr).replace("\n", " ")
        print(f"{way}: exit code {done.returncode}: {words}", flush=True)


def test_ranks_on_several_hosts_need_a_key_or_trust() -> None:
    """Two agents with a rank each, as on two hosts."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "two"]
    with launched.script_file(joins_in_three_ways) as path, tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        settings = {"HORO_INTERFACE": "127.0.0.1", "THE_KEY": str(key)}
        agents = [launched.start(command, path, **settings) for _ in range(2)]
        try:
            said = "\n".join(agent.communicate(timeout=200)[0] for agent in agents)
        finally:
            for agent in agents:
                agent.kill()
    refused = [line for line in said.splitlines() if "told nothing: exit code 1" in line]
    assert len(refused) == 2, said
    assert all("HORO_KEY_FILE" in line and "HORO_TRUST_STORE=1" in line for line in refused), said
    for way in ("a key", "trust"):
        for rank in range(2):
            assert f"{way}: exit code 0: done as rank {rank} of 2" in said, said
