"""Jobs that are given a hard time for long: ranks killed in the middle of training, cores that are not enough, threads
that do not let go of the interpreter. `make chaos` runs them for as long as TEST_ENDURANCE_SECONDS says."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jobs
import pytest

SECONDS = float(os.environ.get("TEST_ENDURANCE_SECONDS", "15"))
long = pytest.mark.skipif(
    not os.environ.get("LONG_TESTS") and "TEST_ENDURANCE_SECONDS" not in os.environ, reason="takes long: make test-all"
)


@dataclass
class Watched:
    """A job whose lines are read as they come."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip())
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, seconds), "\n".join(self.lines[-60:])

    def found(self, pattern: str) -> list[str]:
        return [match.group(1) for line in list(self.lines) if (match := re.search(pattern, line))]


@contextlib.contextmanager
def watched(count: int, *words: str, flags: tuple[str, ...] = (), **settings: str) -> Iterator[Watched]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    process = subprocess.Popen(
        [jobs.launcher(), "run", "-np", str(count), *flags, sys.executable, "-u", *words],
        env={**inherited, "OMP_NUM_THREADS": "1", **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    job = Watched(process)
    reader = threading.Thread(target=job.read, daemon=True)
    reader.start()
    try:
        yield job
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        reader.join(60)


def train(folder: Path, count: int, kills: int, every: float) -> tuple[float, int]:
    """The accuracy, and how many ranks were killed. Ranks that the launcher puts in their place are killed as well."""
    enough = folder / f"enough {kills}"
    script = str(Path(__file__).with_name("recovering.py"))
    settings = {"TEST_ENOUGH": str(enough), "TEST_EPOCHS": os.environ.get("TEST_EPOCHS", "12")}
    killed: set[str] = set()
    chance = random.Random(os.environ.get("TEST_SEED", "1"))
    flags = ("--min-np", "1", "--max-np", str(count))
    with watched(count, script, flags=flags, **settings) as job:
        job.wait_for(lambda: bool(job.found(r"epoch (1) with")), 240)
        assert len(job.found(r"born (\d+)")) == count
        end = time.monotonic() + kills * every
        while time.monotonic() < end:
            alive = [pid for pid in job.found(r"born (\d+)") if pid not in killed and Path(f"/proc/{pid}").exists()]
            if len(alive) < 3:
                break  # As far as it can shrink and still be a job of several.
            victim = chance.choice(alive)
            os.kill(int(victim), signal.SIGKILL)
            killed.add(victim)
            # Nothing is waited for but the next blow, which comes at a random instant of training.
            pause = every * chance.uniform(0.8, 1.2)
            with pytest.raises(subprocess.TimeoutExpired):
                job.process.wait(pause)
        enough.touch()
        assert job.process.wait(600) == 0, "\n".join(job.lines[-80:])
        job.wait_for(lambda: bool(job.found(r"accuracy ([\d.]+) ")), 20)
        print("\n".join(line for line in job.lines if "accuracy" in line))
        return float(job.found(r"accuracy ([\d.]+) ")[0]), len(killed)


@long
def test_training_whose_ranks_are_killed_learns_as_much_as_an_undisturbed_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    # A rank every five seconds, or as quickly as the time allows.
    every = min(5.0, SECONDS / 6)
    undisturbed, _ = train(tmp_path, 2, 0, 1)
    disturbed, killed = train(tmp_path, 8, int(SECONDS / every), every)
    print(f"undisturbed {undisturbed:.4f}; {killed} of 8 ranks killed: {disturbed:.4f}")
    assert killed >= 6
    assert disturbed >= undisturbed - 0.01


PATIENT = """
import ctypes, os, time
import numpy as np
import horo
horo.init()
end = time.monotonic() + float(os.environ["TEST_SECONDS"])
held = float(os.environ["TEST_HELD"])
turn = 0
over = False
while not over:
    turn += 1
    if turn % 400 == 100 * (1 + horo.rank() % 3):
        # Nothing of Python runs in this process meanwhile; horo's threads must.
        ctypes.PyDLL(None).poll(None, 0, int(held * 1000))
    values = np.full(5001, 1.0)
    values[5000] = time.monotonic() > end
    total = horo.allreduce(values, op=horo.Sum, name="sum")
    assert (total[:5000] == 8).all() and horo.size() == 8
    over = total[5000] > 0
text = horo.metrics_text()
epoch = [line.split()[-1] for line in text.splitlines() if line.startswith("horo_epoch")]
print("patient", turn, "turns, epoch", epoch[0], flush=True)
"""


@long
def test_nobody_is_given_up_where_cores_are_scarce_and_threads_hold_the_interpreter(tmp_path: Path) -> None:
    """Eight ranks and as many idle loops as there are cores; a rank holds the GIL for longer than a freeze may last."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        # In the short form both are shorter: what counts is that the GIL is held for longer than the limit.
        thorough = SECONDS >= 60
        settings = {"TEST_SECONDS": str(SECONDS), "TEST_HELD": "10.5" if thorough else "2.5"}
        settings |= {} if thorough else {"HORO_FREEZE_TIMEOUT": "2s"}
        with watched(8, "-c", PATIENT, flags=("--min-np", "1"), **settings) as job:
            assert job.process.wait(SECONDS + 300) == 0, "\n".join(job.lines[-60:])
            job.wait_for(lambda: len(job.found(r"patient (\d+)")) == 8, 20)
        turns = job.found(r"patient (\d+)")
        assert job.found(r"epoch (\d+)$") == ["0"] * 8, "\n".join(job.lines)
        assert len(set(turns)) == 1
        assert not any("lost" in line or "given up" in line for line in job.lines), "\n".join(job.lines)
        print(f"{turns[0]} rounds of 8 ranks in {SECONDS} s, nobody given up")
    finally:
        for one in busy:
            one.kill()
            one.wait()
