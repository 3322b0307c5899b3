"""Jobs whose ranks die while they train: the others go on in place, from their last commit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import jobs
import numpy as np
import pytest

import horo
import horo.elastic


def launch(count: int, script: str, *flags: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [jobs.launcher(), "run", "-np", str(count), *flags, sys.executable, "-u", "-c", script],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def count_to_thirty() -> None:
    import horo.elastic

    horo.init()
    born = int(os.environ["HORO_RANK"])
    dies_at = {3: 5, 0: 11, 1: 12}  # The lowest rank, which leads the change, among them.
    sizes = []

    def train(state: horo.elastic.ObjectState) -> None:
        sizes.append(horo.size())
        while state.step < 30:
            if dies_at.get(born) == state.step and state.step > 0:
                os.kill(os.getpid(), signal.SIGKILL)
            total = horo.allreduce(np.full(1000, 1.0), op=horo.Sum, name="ones")
            assert (total == horo.size()).all(), total
            state.step += 1
            state.applied.append(state.step)
            if state.step % 3 == 0:
                state.commit()

    state = horo.elastic.ObjectState(lambda obj: horo.broadcast_object(obj, 0), horo.rank, step=0, applied=[])
    state.register_reset_callbacks([lambda: print("reset", flush=True)])
    horo.elastic.run_fn(train)(state)
    assert state.applied == list(range(1, 31)), state.applied
    others = horo.allgather_object(state.applied)
    assert all(one == state.applied for one in others)
    assert horo.global_process_set.ranks == list(range(horo.size()))
    print(f"sizes {sizes} rank {horo.rank()} born {born}", flush=True)


def test_ranks_die_one_after_the_other_and_no_step_is_lost_or_done_twice() -> None:
    done = launch(5, jobs.script_of(count_to_thirty), "--min-np", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    for born, rank in ((2, 0), (4, 1)):
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"[{born}]<stdout>:sizes")]
        assert len(lines) == 1, done.stdout + done.stderr
        assert lines[0].endswith(f"2] rank {rank} born {born}"), lines[0]
        assert "sizes [5, 4, " in lines[0]
    assert "rank 3 on localhost is lost (signal 9); the job goes on with 4 ranks" in done.stderr


def test_the_launcher_ends_the_job_when_too_few_are_left() -> None:
    done = launch(4, jobs.script_of(count_to_thirty), "--min-np", "4")
    assert done.returncode == 128 + signal.SIGKILL, done.stdout + done.stderr
    assert "3 ranks are left, fewer than --min-np 4" in done.stderr


def too_few() -> None:
    import horo.elastic

    horo.init()

    def train(state: horo.elastic.ObjectState) -> None:
        if horo.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        horo.barrier()

    try:
        horo.elastic.run_fn(train)(horo.elastic.ObjectState(lambda obj: horo.broadcast_object(obj, 0), horo.rank))
    except horo.HorovodInternalError as error:
        print(error, error.code)


def test_the_job_ends_when_too_few_are_left() -> None:
    job = jobs.start(3, too_few, HORO_ELASTIC_MIN_RANKS="3")
    assert job.wait() == [0, -signal.SIGKILL, 0]
    for rank in (0, 2):
        assert "2 ranks are left, fewer than the 3 that HORO_ELASTIC_MIN_RANKS" in job.outputs[rank]
        assert "unavailable" in job.outputs[rank]


def does_not_come() -> None:
    import horo.elastic

    horo.init()
    rank = horo.rank()
    with contextlib.suppress(horo.HorovodInternalError):
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        horo.barrier()
    print("failed", flush=True)
    if rank == 1:
        signal.pause()
    try:
        horo.elastic.reset_job()
    except horo.HorovodInternalError as error:
        print(error, flush=True)


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_told() -> None:
    job = jobs.start(3, does_not_come, HORO_ELASTIC_TIMEOUT="1")
    assert job.line(0) == "failed"
    assert job.line(0).startswith("timeout: not all of ranks 0, 1 came")
    job.ranks[1].send_signal(signal.SIGTERM)
    assert job.wait() == [0, -signal.SIGTERM, -signal.SIGKILL]


def train_torch() -> None:
    import hashlib

    import torch

    import horo.torch as hvd

    hvd.init()
    born = int(os.environ["HORO_RANK"])
    dies_at = {1: 7, 0: 16, 2: 23}
    torch.manual_seed(1)
    data = torch.randn(256, 10)
    target = data @ torch.randn(10, 3)
    model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    if os.environ["TEST_WRAPS"] == "model":
        model = hvd.DistributedDataParallel(model)
    else:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(256), shuffle=False)

    def digest() -> str:
        parts = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        while state.step < 40:
            if dies_at.get(born) == state.step:
                os.kill(os.getpid(), signal.SIGKILL)
            rows = torch.tensor(state.sampler.indices[:8])
            optimizer.zero_grad()
            loss = (model(data[rows]) - target[rows]).pow(2).mean()
            loss.backward()
            optimizer.step()
            state.step += 1
            state.applied.append(state.step)
            if state.step % 2 == 0:
                # Equal on all ranks at each commit.
                assert len(set(hvd.allgather_object(digest()))) == 1
                state.commit()
        state.loss = float(hvd.allreduce(loss.detach(), name="loss"))

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, step=0, applied=[], loss=0.0)
    first = float((model(data) - target).pow(2).mean())
    train(state)
    assert state.applied == list(range(1, 41)), state.applied
    assert state.loss < first / 2, (first, state.loss)
    assert sampler.num_replicas == hvd.size() == 1
    print("trained", hvd.size(), flush=True)


@pytest.mark.parametrize("wraps", ["optimizer", "model"])
def test_torch_trains_on_while_ranks_die(wraps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("TEST_WRAPS", wraps)
    done = launch(4, jobs.script_of(train_torch), "--min-np", "1", seconds=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[3]<stdout>:trained 1" in done.stdout, done.stdout + done.stderr
