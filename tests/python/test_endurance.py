"""Jobs that are given a hard time for long: ranks killed in the middle of training, cores that are not enough, threads
that do not let go of the interpreter. `make chaos` runs them for as long as TEST_ENDURANCE_SECONDS says."""

from __future__ import annotations

import contextlib
import itertools
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


RANKS = 4
SCRIPT = Path(__file__).with_name("recovering.py")


def train(folder: Path, steps: int, torment: Callable[[Watched], None]) -> tuple[float, int]:
    """The accuracy, and after how many steps. What is done to the job is the caller's."""
    logs, enough = folder / "logs", folder / "enough"
    logs.mkdir(parents=True)
    settings = {"TEST_STEPS": str(steps), "TEST_ENOUGH": str(enough), "TEST_LOGS": str(logs)}
    # Whoever is killed is replaced, very soon.
    flags = ("--min-np", "2", "--max-np", str(RANKS), "--blacklist-cooldown-range", "0.1", "0.2")
    with watched(RANKS, str(SCRIPT), flags=flags, **settings) as job:
        job.wait_for(lambda: len(job.found(r"trains (\d+)")) >= RANKS, 240)
        torment(job)
        enough.touch()
        assert job.process.wait(600) == 0, "\n".join(job.lines[-80:])
        job.wait_for(lambda: bool(job.found(r"accuracy ([\d.]+) ")), 20)
        return float(job.found(r"accuracy ([\d.]+) ")[0]), int(job.found(r"after (\d+) steps")[0])


class Blows:
    """Kills a random process of the job every so often: ranks, rank 0 too, and those who wait to be let in."""

    def __init__(self, every: float) -> None:
        self.every = every
        self.trained: list[int] = []  # How many ranks did when each blow fell.
        self.killed: set[str] = set()

    def living(self, job: Watched, said: str) -> list[str]:
        return [pid for pid in job.found(said) if pid not in self.killed and Path(f"/proc/{pid}").exists()]

    def fall(self, job: Watched) -> None:
        chance = random.Random(os.environ.get("TEST_SEED", "1"))
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            trains = self.living(job, r"trains (\d+)")
            waits = [pid for pid in self.living(job, r"started (\d+)") if pid not in trains]
            # With the last one that has it the state would be lost, and that is no mistake.
            victims = waits + (trains if len(trains) > 1 else [])
            if victims:
                victim = chance.choice(victims)
                os.kill(int(victim), signal.SIGKILL)
                self.killed.add(victim)
                self.trained.append(len(trains))
            # Nothing is waited for but the next blow, which comes at a random instant of training.
            with pytest.raises(subprocess.TimeoutExpired):
                job.process.wait(self.every * chance.uniform(0.8, 1.2))
        # However slow the machine is, those who were killed are replaced.
        job.wait_for(lambda: len(self.living(job, r"trains (\d+)")) == RANKS, 240)


def committed(logs: Path) -> dict[int, set[str]]:
    """What was committed, by steps: the hashes that all processes of the job, the killed ones too, have written. What
    one of them has written must follow from what it wrote before."""
    line: dict[int, set[str]] = {}
    for log in logs.iterdir():
        applied = saved = -1
        for words in log.read_text().split("\n")[:-1]:  # The last one may be half a line.
            kind, number, *rest = words.split()
            count = int(number)
            if kind == "from":
                # Where it was saved last; that a commit had ended it need not have seen.
                assert applied == -1 or count in (saved, applied), f"{log}: {words} after {applied}, saved {saved}"
            elif kind == "step":
                assert count == applied + 1, f"{log}: {words} after {applied}"
            else:
                assert count == applied, f"{log}: {words} after {applied}"
            applied = count
            if rest:
                saved = count
                line.setdefault(count, set()).add(rest[0])
    return line


@long
def test_training_whose_ranks_are_killed_and_replaced_learns_as_much_as_an_undisturbed_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    # A process every five seconds, or as quickly as the time allows.
    blows = Blows(min(5.0, SECONDS / 6))
    disturbed, steps = train(tmp_path / "disturbed", 300, blows.fall)
    line = committed(tmp_path / "disturbed" / "logs")
    wrong = {step: hashes for step, hashes in line.items() if len(hashes) != 1}
    assert not wrong, wrong
    # None is lost, and none done twice: steps go on by one, from one commit to the next.
    between = {later - earlier for earlier, later in itertools.pairwise(sorted(line))}
    assert (min(line), max(line), between) == (0, steps, {3})
    undisturbed, as_many = train(tmp_path / "undisturbed", steps, lambda job: None)
    assert as_many == steps
    whole = sum(count == RANKS for count in blows.trained)
    print(
        f"  told: {len(blows.killed)} ranks killed in {SECONDS:.0f} s, all {RANKS} trained at {whole} of the blows; "
        f"{len(line)} commits of {steps} steps; accuracy {disturbed:.4f}, undisturbed {undisturbed:.4f}"
    )
    assert len(blows.killed) >= 3
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
