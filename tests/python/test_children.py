"""Ranks with children of multiprocessing, which hold what they have inherited, while a rank is killed."""
# ruff: noqa: PT017, PT018  Ranks run these functions as programs, without pytest.

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time

import jobs
import numpy as np
import pytest

import horo

RANKS = 3


def work_with_children() -> None:
    """Every rank has two forked and two spawned children, as a DataLoader has. Rank 1 is killed, its children stay."""
    import multiprocessing
    import time

    horo.init()
    children = [
        multiprocessing.get_context(method).Process(target=time.sleep, args=(600,), daemon=True)
        for method in ("fork", "spawn", "fork", "spawn")
    ]
    for child in children:
        child.start()
    print("children", *(child.pid for child in children))
    try:
        horo.barrier()  # The others may still be in it when rank 1 is killed.
        if horo.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            horo.allreduce(np.ones(1000), name="work")
    except horo.HorovodInternalError as error:
        assert error.code == "peer-lost" and error.lost_ranks == (1,), error
    assert all(child.is_alive() for child in children)
    print("rank 1 is lost")


def lives(process: int) -> bool:
    """Not so once it has ended, though nobody has asked for its exit code yet."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def all_end(processes: list[int], seconds: float = 20) -> bool:
    limit = time.monotonic() + seconds
    while any(lives(process) for process in processes):
        if time.monotonic() > limit:
            return False
        threading.Event().wait(0.01)
    return True


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_children_of_a_killed_rank_do_not_hide_its_death(transport: str) -> None:
    # With the limit for ranks that are silent this far away, only the death itself can be what is noticed.
    job = jobs.start(RANKS, work_with_children, HORO_TRANSPORT=transport, HORO_FREEZE_TIMEOUT="10min")
    children = []
    try:
        for rank in range(RANKS):
            children.append([int(word) for word in job.line(rank).split()[1:]])
        for rank in (0, 2):
            assert job.line(rank) == "rank 1 is lost"
        assert all(lives(child) for child in children[1])
    finally:
        # They hold the output of rank 1 open, too.
        for child in children[1] if len(children) > 1 else []:
            os.kill(child, signal.SIGKILL)
        codes = job.wait()
    assert codes == [0, -signal.SIGKILL, 0], job.outputs
    assert all_end(children[0] + children[2]), "they end with their rank"


def test_the_launcher_ends_the_children_of_a_killed_rank() -> None:
    done = subprocess.run(
        [jobs.launcher(), "run", "-np", str(RANKS), sys.executable, "-u", "-c", jobs.script_of(work_with_children)],
        capture_output=True,
        text=True,
        timeout=jobs.LIMIT_SECONDS,
        check=False,
    )
    report = done.stdout + done.stderr
    assert done.returncode == 128 + signal.SIGKILL, report
    assert "rank 1" in done.stderr, report
    lines = re.findall(r"children ([\d ]+)", done.stdout)
    assert len(lines) == RANKS, report
    assert all_end([int(word) for line in lines for word in line.split()])
