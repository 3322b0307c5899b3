"""Jobs that processes enter and leave while they train. What a launcher does, these tests do themselves."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jobs
import numpy as np
import pytest

from horo import elastic
from horo._horo import Store


def train_until_told() -> None:
    """Adds one to all weights at each step, whatever the number of ranks, until rank 0 finds the file `stop`.

    GIVING says what happens when the weights are given to somebody who has come: seat 0 "waits" for seat 1 to train
    with it, or "dies"; or seat 2 has "spoilt" what it got.
    """
    import pathlib
    import select
    from typing import Any

    import horo.elastic

    folder = pathlib.Path(os.environ["FOLDER"])
    seat = os.environ["HORO_SEAT"]
    horo.init()
    sizes: list[int] = []
    deeds = {"0": os.environ.get("GIVING", ""), "2": os.environ.get("GIVING", "").replace("waits", "")}

    class Weights(horo.elastic.ObjectState):
        """An array that is saved, restored and given in place, as models are."""

        def __init__(self) -> None:
            self.weights = np.zeros(1000)
            self.saved = self.weights.copy()
            super().__init__(lambda obj: horo.broadcast_object(obj, 0), horo.rank, step=0)

        def save(self) -> None:
            self.saved[:] = self.weights
            super().save()

        def restore(self) -> None:
            self.weights[:] = self.saved
            super().restore()

        def sync(self) -> None:
            horo.broadcast_(self.weights, 0, name="weights")
            self.saved[:] = self.weights
            super().sync()

        def _gives(self) -> bool:
            return True

        def _share(self) -> None:
            super().sync()

        def _give(self, process_set: Any) -> None:
            deed = deeds.pop(seat, "")
            if deed == "waits":
                news = os.open(folder / "goes_on", os.O_RDONLY | os.O_NONBLOCK)
                assert select.select([news], [], [], 20)[0], "seat 1 waits for the state to be given"
                os.close(news)
            if deed == "dies" and seat == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            horo.broadcast_(self.weights, 0, name="weights", process_set=process_set)
            self.saved[:] = self.weights
            print("given", flush=True)
            if deed == "spoilt" and seat == "2":
                self.saved[7] += 1

        def _contents(self) -> list[np.ndarray]:
            return [self.saved]

    def train(state: Weights) -> None:
        sizes.append(horo.size())
        if seat == "1" and sizes == [2, 3] and os.environ.get("GIVING") == "waits":
            (folder / "goes_on").write_bytes(b"1")
        while True:
            (folder / f"new{seat}").write_text(f"{state.step} {horo.rank()} {horo.size()}")
            (folder / f"new{seat}").rename(folder / f"seat{seat}")  # Nobody reads half of it.
            if (folder / f"die{seat}").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            told = np.array([(folder / "stop").exists()] if horo.rank() == 0 else [False], np.int32)
            if horo.broadcast(told, 0, name="told")[0]:
                return
            total = horo.allreduce(np.ones(1000), op=horo.Sum, name="ones")
            assert (total == horo.size()).all(), total
            state.weights += total / horo.size()
            state.step += 1
            state.commit()

    state = Weights()
    horo.elastic.run_fn(train)(state)
    assert (state.weights == state.step).all(), (state.step, state.weights)
    everybody = horo.allgather_object((state.step, state.weights.tobytes()))
    assert all(one == everybody[0] for one in everybody)
    assert horo.global_process_set.ranks == list(range(horo.size()))
    # Of the jobs that were before nothing is left open.
    opened = len(os.listdir("/proc/self/fd"))
    assert opened < 20 + 10 * horo.size(), (opened, sizes)
    print(f"seat {seat} rank {horo.rank()} sizes {sizes} step {state.step}", flush=True)


def train_torch_until_told() -> None:
    """One model with DistributedOptimizer, one with DistributedDataParallel, which is made anew in each job."""
    import pathlib

    import torch

    import horo.torch as hvd

    folder = pathlib.Path(os.environ["FOLDER"])
    seat = os.environ["HORO_SEAT"]
    torch.set_num_threads(1)
    torch.manual_seed(int(seat))
    hvd.init()
    models = [torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)) for _ in "12"]
    first = hvd.DistributedOptimizer(
        torch.optim.Adam(models[0].parameters()), models[0].named_parameters(), gradient_as_bucket_view=True
    )
    second = torch.optim.Adam(models[1].parameters())

    def train(state: hvd.elastic.TorchState) -> None:
        wrapped = hvd.DistributedDataParallel(models[1])
        while True:
            (folder / f"new{seat}").write_text(f"{state.step} {hvd.rank()} {hvd.size()}")
            (folder / f"new{seat}").rename(folder / f"seat{seat}")
            if (folder / f"die{seat}").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            told = torch.tensor([int((folder / "stop").exists())])
            if hvd.broadcast(told, 0, name="told")[0]:
                return
            for model, optimizer in ((models[0], first), (wrapped, second)):
                optimizer.zero_grad()
                model(torch.randn(32, 64)).square().mean().backward()
                optimizer.step()
            state.step += 1
            state.commit()

    state = hvd.elastic.TorchState(model=models[0], optimizer=first, other=models[1], second=second, step=0)
    hvd.elastic.run(train)(state)
    weights = torch.cat([one.detach().flatten() for model in models for one in model.parameters()])
    everybody = hvd.allgather_object((state.step, weights.numpy().tobytes()))
    assert all(one == everybody[0] for one in everybody)
    print(f"step {state.step}", flush=True)


def share_samples() -> None:
    """Three batches of two on each rank, and then what is left of them when some have left."""
    import horo.torch as hvd

    hvd.init()
    dataset = list(range(60))
    sampler = hvd.elastic.ElasticSampler(dataset)
    mine = []

    def train(state: hvd.elastic.TorchState) -> None:
        if hvd.size() == 3:
            for batch in range(3):
                mine.extend(sampler.get_indices(batch, 2))
                sampler.record_batch(batch, 2)
            print("done", *mine, flush=True)
            while True:
                state.commit()
        print("left", *sampler, flush=True)
        state.restore()
        print("left", *sampler, flush=True)

    hvd.elastic.run(train)(hvd.elastic.TorchState(sampler=sampler))


class Job:
    """A store, and processes by their seats."""

    def __init__(self, folder: Path, body: Callable[[], None] = train_until_told, **variables: str) -> None:
        self.folder = folder
        self._script = jobs.script_of(body)
        key = secrets.token_bytes(32)
        self._key = folder / "key"
        self._key.touch(0o600)
        self._key.write_bytes(key)
        self.store = Store("127.0.0.1:0", "growing", key)
        self.variables = variables
        self.seats: dict[int, subprocess.Popen[str]] = {}

    def start(self, seat: int, rank: int | None = None, size: int = 0) -> None:
        """Without a rank it comes later."""
        place = {} if rank is None else {"HORO_RANK": str(rank), "HORO_SIZE": str(size)}
        known = {name: value for name, value in os.environ.items() if not name.startswith(("HORO_", "HOROVOD_"))}
        self.seats[seat] = subprocess.Popen(
            [sys.executable, "-u", "-c", self._script],
            env={
                **known,
                **place,
                "HORO_SEAT": str(seat),
                "HORO_STORE": self.store.address,
                "HORO_JOB_ID": "growing",
                "HORO_KEY_FILE": str(self._key),
                "HORO_TIMEOUT": "20s",
                "FOLDER": str(self.folder),
                **self.variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_until(self, seat: int, holds: Callable[[int, int, int], bool], seconds: float = 40) -> None:
        """For the step, the rank and the size that a seat has come to."""
        end = time.monotonic() + seconds
        last = "nothing"
        while time.monotonic() < end:
            path = self.folder / f"seat{seat}"
            last = path.read_text() if path.exists() else last
            words = last.split()
            if len(words) == 3 and holds(*map(int, words)):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.seats[seat].wait(0.02)
                break
        (self.folder / "stop").touch()
        raise AssertionError(f"seat {seat} has come to {last}; " + "".join(self.end(3).values()))

    def end(self, seconds: float = 40) -> dict[int, str]:
        """Lets the training end; what each seat said."""
        (self.folder / "stop").touch()
        said = {}
        for seat, process in self.seats.items():
            try:
                said[seat] = process.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                said[seat] = process.communicate()[0] + "\n(had to be killed)"
        return said


def step_of(said: str) -> int:
    return int(said.split("step ")[-1])


def test_processes_enter_a_job_that_trains_and_leave_it_again(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for rank in range(2):
        job.start(rank, rank, 2)
    job.wait_until(0, lambda step, rank, size: step >= 5 and size == 2)
    job.start(2)
    job.start(5)
    job.wait_until(5, lambda step, rank, size: size == 4)
    job.wait_until(0, lambda step, rank, size: size == 4)
    job.store.ask_to_leave(1, "its host is needed elsewhere")
    job.store.ask_to_leave(2, "its host is needed elsewhere")
    job.wait_until(5, lambda step, rank, size: size == 2 and rank == 1)
    # Whose slot is gone before it has entered is not let in.
    job.store.ask_to_leave(6, "its host is needed elsewhere")
    job.start(6)
    assert job.seats[6].wait(30) == 0
    said = job.end()
    assert [job.seats[seat].returncode for seat in (0, 1, 2, 5)] == [0, 0, 0, 0], said
    assert "the slot of seat 6 is gone: this process ends" in said[6]
    assert "seat 1 leaves the job, as its slot is gone" in said[1]
    assert "seat 2 leaves the job" in said[2]
    assert "seat 0 rank 0 sizes [2, 4, 2]" in said[0] or "seat 0 rank 0 sizes [2, 3, 4, 2]" in said[0], said
    assert step_of(said[0]) == step_of(said[5]) > 5


def test_what_those_who_leave_have_sampled_is_not_sampled_again(tmp_path: Path) -> None:
    if not jobs.is_installed("torch"):
        pytest.skip("PyTorch is not installed in this environment")
    job = Job(tmp_path, share_samples)
    job.store.ask_to_leave(1, "its host is needed elsewhere")
    for rank in range(3):
        job.start(rank, rank, 3)
    said = job.end()
    assert [job.seats[seat].returncode for seat in range(3)] == [0, 0, 0], said

    def shares(kind: str) -> list[list[int]]:
        lines = [line.split() for seat in range(3) for line in said[seat].splitlines()]
        return [[int(one) for one in words[1:]] for words in lines if words[:1] == [kind]]

    processed = [one for share in shares("done") for one in share]
    assert len(processed) == len(set(processed)) == 18, said
    left = shares("left")
    assert len(left) == 4, said  # Of two ranks, before and after they went back to the commit.
    for turn in range(2):
        assert sorted(left[turn] + left[turn + 2]) == sorted(set(range(60)) - set(processed)), said


def test_the_death_of_a_rank_is_made_up_for_by_one_who_comes(tmp_path: Path) -> None:
    """The lowest rank dies; too few are left, who wait; one comes and gets the state of those who are left."""
    job = Job(tmp_path, HORO_ELASTIC_MIN_RANKS="2", HORO_ELASTIC_TIMEOUT="30")
    for rank in range(2):
        job.start(rank, rank, 2)
    job.wait_until(0, lambda step, rank, size: step >= 5)
    (tmp_path / "die0").touch()
    assert job.seats[0].wait(20) == -signal.SIGKILL
    job.start(2)
    job.wait_until(2, lambda step, rank, size: size == 2 and rank == 1)
    said = job.end()
    assert [job.seats[seat].returncode for seat in (1, 2)] == [0, 0], said
    assert "1 ranks are left, fewer than the 2 of --min-np: waiting for others" in said[1]
    assert step_of(said[1]) == step_of(said[2]) > 5


@pytest.mark.parametrize("giving", ["waits", "dies", "spoilt"])
def test_newcomers_get_the_state_while_the_others_go_on(giving: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "goes_on")
    job = Job(tmp_path, GIVING=giving)
    for rank in range(2):
        job.start(rank, rank, 2)
    job.wait_until(1, lambda step, rank, size: step >= 3)
    job.start(2)
    left = 2 if giving == "dies" else 3
    job.wait_until(2, lambda step, rank, size: size == left)
    at = int((tmp_path / "seat2").read_text().split()[0])
    job.wait_until(2, lambda step, rank, size: step > at + 3)
    said = job.end()
    codes = [job.seats[seat].returncode for seat in range(3)]
    assert codes == [-signal.SIGKILL if giving == "dies" else 0, 0, 0], said
    assert step_of(said[1]) == step_of(said[2]) > 6
    assert [said[seat].count("given") for seat in range(3)] == ([0, 0, 0] if giving == "dies" else [1, 0, 1])
    # "spoilt" has not gone unnoticed: all began anew once more.
    again = {"waits": "[2, 3]", "dies": "[2, 3, 2]", "spoilt": "[2, 3, 3]"}[giving]
    assert f"seat 1 rank {1 - (giving == 'dies')} sizes {again}" in said[1], said


def test_the_hash_of_a_state_sees_every_byte_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Arrays(elastic.ObjectState):
        def __init__(self, *arrays: np.ndarray) -> None:
            self.arrays = arrays

        def _contents(self) -> tuple[np.ndarray, ...]:
            return self.arrays

    monkeypatch.setattr(elastic, "_HASHED_BYTES", 16)
    arrays = [np.arange(11.0), np.empty(0), np.arange(5, dtype=np.uint8), np.array(7.0), np.empty((2, 0))]
    before = elastic._digest(Arrays(*arrays))
    assert before == elastic._digest(Arrays(*(one.copy() for one in arrays)))
    seen = {before, elastic._digest(Arrays(np.arange(11.0), *arrays[2:]))}
    for one in (arrays[0].view(np.uint8), arrays[2]):
        for place in range(one.size):
            one[place] ^= 1
            seen.add(elastic._digest(Arrays(*arrays)))
            one[place] ^= 1
    assert len(seen) == 2 + 88 + 5


def test_a_job_does_not_grow_beyond_its_limit(tmp_path: Path) -> None:
    job = Job(tmp_path, HORO_ELASTIC_MAX_RANKS="2", HORO_ELASTIC_TIMEOUT="5")
    job.start(0, 0, 1)
    job.wait_until(0, lambda step, rank, size: step >= 3)
    job.start(1)
    job.wait_until(1, lambda step, rank, size: size == 2)
    job.start(2)
    assert job.seats[2].wait(30) == 1
    said = job.end()
    assert job.seats[0].returncode == job.seats[1].returncode == 0, said
    assert "did not take in seat 2 within HORO_ELASTIC_TIMEOUT" in said[2]
    assert "rank 0 sizes [1, 2]" in said[0]


def test_a_job_whose_launcher_is_gone_goes_on(tmp_path: Path) -> None:
    job = Job(tmp_path, HORO_ELASTIC_MIN_RANKS="1")
    for rank in range(3):
        job.start(rank, rank, 3)
    job.wait_until(0, lambda step, rank, size: step >= 5)
    job.store.close()
    (tmp_path / "die1").touch()
    job.wait_until(2, lambda step, rank, size: size == 2)
    said = job.end()
    assert [job.seats[seat].returncode for seat in (0, 2)] == [0, 0], said
    assert "the launcher is gone" in said[0]
    assert step_of(said[0]) == step_of(said[2]) > 5


def test_models_and_optimizers_of_torch_go_through_growth_losses_and_leaving(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    job = Job(tmp_path, train_torch_until_told)
    for rank in range(2):
        job.start(rank, rank, 2)
    job.wait_until(0, lambda step, rank, size: step >= 3)
    job.start(2)
    job.start(3)
    job.wait_until(3, lambda step, rank, size: size == 4)
    (tmp_path / "die0").touch()
    job.wait_until(3, lambda step, rank, size: size == 3)
    job.store.ask_to_leave(2, "its host is needed elsewhere")
    job.wait_until(3, lambda step, rank, size: size == 2)
    said = job.end()
    assert [job.seats[seat].returncode for seat in range(4)] == [-signal.SIGKILL, 0, 0, 0], said
    assert step_of(said[1]) == step_of(said[3]) > 3


def test_ranks_come_go_and_die_at_random(tmp_path: Path) -> None:
    """CHURN_EVENTS=500 for longer. A seed that fails is printed."""
    seed = int(os.environ.get("TEST_SEED") or secrets.randbelow(1 << 31))
    draw = random.Random(seed)
    print(f"TEST_SEED={seed}")
    job = Job(tmp_path, HORO_ELASTIC_TIMEOUT="60")
    for rank in range(2):
        job.start(rank, rank, 2)
    job.wait_until(0, lambda step, rank, size: step >= 2)
    veterans, coming = [0, 1], []  # Who trains, and who was started.
    for _ in range(int(os.environ.get("CHURN_EVENTS", "12"))):
        arrived = [seat for seat in coming if (tmp_path / f"seat{seat}").exists()]
        veterans += arrived
        coming = [seat for seat in coming if seat not in arrived]
        deed = draw.choice(["come", "come", "die", "die", "leave", "die at the door"])
        if deed == "come" and len(veterans) + len(coming) < 6:
            coming.append(len(job.seats))
            job.start(coming[-1])
        elif deed == "die at the door" and coming:
            seat = coming.pop(draw.randrange(len(coming)))
            job.seats[seat].kill()
            job.seats[seat].wait()
            job.store.newcomer_ended(seat)
        elif deed in ("die", "leave") and len(veterans) > 2:
            seat = veterans.pop(draw.randrange(len(veterans)))
            if deed == "leave":
                job.store.ask_to_leave(seat, "at random")
            else:
                job.seats[seat].kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = job.seats[veterans[0]].wait(draw.uniform(0, 0.4))
            raise AssertionError(f"seat {veterans[0]} ended with {code}, {seed=}: {job.end(3)}")
    for seat in veterans[:1]:
        before = int((tmp_path / f"seat{seat}").read_text().split()[0])
        job.wait_until(seat, lambda step, rank, size, before=before: step > before + 3)
    (tmp_path / "stop").touch()
    for seat in veterans:
        job.seats[seat].wait(40)
    for seat in coming:
        job.seats[seat].kill()  # It may wait at the door, and nobody is left to open.
    said = job.end()
    ended = [seat for seat in job.seats if job.seats[seat].returncode == 0 and "sizes" in said[seat]]
    failed = {seat: said[seat] for seat in veterans if seat not in ended}
    assert not failed, (seed, failed)
    assert len({step_of(said[seat]) for seat in ended}) == 1, (seed, said)
