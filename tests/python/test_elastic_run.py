"""`horo run` as the driver of jobs that grow, shrink, replace dead ranks, and outlive it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jobs
import numpy as np

import horo
import horo.elastic

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "python" / "elastic_resize.py"


def launch(flags: list[str], *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [jobs.launcher(), "run", *flags, sys.executable, "-u", *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_a_job_grows_from_two_ranks_to_four_and_shrinks_back(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:2\n")
    flags = ["-np", "2", "--min-np", "1", "--max-np", "4", "--host-discovery-script", f"cat {hosts}"]
    done = launch(flags, str(EXAMPLE), str(hosts))
    assert done.returncode == 0, done.stdout + done.stderr
    story = re.search(r"sizes: ([0-9 >-]+) in", done.stdout)
    assert story is not None, done.stdout
    sizes = [int(size) for size in story[1].split(" -> ")]
    assert (sizes[0], max(sizes), sizes[-1]) == (2, 4, 2), sizes
    # Two of the four seats are left, and those that were asked to leave are not taken for failures.
    assert len(re.findall(r"seat \d ends as rank [01] of 2", done.stdout)) == 2, done.stdout
    assert done.stderr.count("has left; the job goes on with") == 2, done.stderr
    for word in ("lost", "warning"):
        assert word not in done.stderr, done.stderr


def replace_the_dead() -> None:
    import horo.elastic

    horo.init()
    sizes = []

    def train(state: horo.elastic.ObjectState) -> None:
        sizes.append(horo.size())
        while state.step < 20:
            if os.environ["HORO_SEAT"] == "1" and state.step == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            assert (horo.allreduce(np.ones(10), op=horo.Sum, name="ones") == horo.size()).all()
            state.step += 1
            state.commit()

    state = horo.elastic.ObjectState(lambda obj: horo.broadcast_object(obj, 0), horo.rank, step=0)
    horo.elastic.run_fn(train)(state)
    print(f"seat {os.environ['HORO_SEAT']} sizes {sizes} step {state.step}", flush=True)


def test_a_killed_rank_is_replaced_after_a_cooldown_and_the_others_wait_for_it() -> None:
    flags = ["-np", "2", "--min-np", "2", "--blacklist-cooldown-range", "0.1", "0.2"]
    done = launch(flags, "-c", jobs.script_of(replace_the_dead))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seat 0 sizes [2, 2] step 20" in done.stdout, done.stdout + done.stderr
    assert "seat 2 sizes [2] step 20" in done.stdout, done.stdout + done.stderr
    assert "1 rank is left, fewer than --min-np 2; waiting up to 600 s for others" in done.stderr, done.stderr


def die_when_let_in() -> None:
    import horo.elastic

    horo.init()
    if os.environ["HORO_SEAT"] == "2":
        os.kill(os.getpid(), signal.SIGKILL)

    def train(state: horo.elastic.ObjectState) -> None:
        # Until the second one that was put in the place of seat 1 is there.
        while not state.replaced:
            if os.environ["HORO_SEAT"] == "1":
                os.kill(os.getpid(), signal.SIGKILL)
            seats = horo.allgather_object(int(os.environ["HORO_SEAT"]), "seats")
            state.replaced = max(seats) > 2
            state.commit()

    state = horo.elastic.ObjectState(lambda obj: horo.broadcast_object(obj, 0), horo.rank, replaced=False)
    horo.elastic.run_fn(train)(state)


def test_a_newcomer_that_dies_as_soon_as_it_is_let_in_counts_as_a_rank() -> None:
    flags = ["-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.1", "0.2"]
    done = launch(flags, "-c", jobs.script_of(die_when_let_in))
    assert done.returncode == 0, done.stdout + done.stderr
    for seat in (1, 2):
        assert f"rank {seat} on localhost is lost (signal 9)" in done.stderr, done.stderr
    assert "ended before it had joined" not in done.stderr, done.stderr


def outlive_the_launcher() -> None:
    import pathlib

    import horo.elastic

    horo.init()
    folder = pathlib.Path(os.environ["FOLDER"])

    def train(state: horo.elastic.ObjectState) -> None:
        while not state.stop:
            horo.allreduce(np.ones(10), name="ones")
            state.stop = horo.broadcast_object((folder / "stop").exists(), 0)
            state.commit()
            (folder / f"trains.{horo.rank()}").touch()

    state = horo.elastic.ObjectState(lambda obj: horo.broadcast_object(obj, 0), horo.rank, stop=False)
    horo.elastic.run_fn(train)(state)
    (folder / f"done.{horo.rank()}").write_text(str(os.getppid()))


def wait_for(paths: list[Path], seconds: float = 60) -> None:
    end, tick = time.monotonic() + seconds, threading.Event()
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end, [path.name for path in paths if not path.exists()]
        tick.wait(0.02)


def test_training_goes_on_when_the_launcher_is_killed(tmp_path: Path) -> None:
    launcher = subprocess.Popen(
        [
            jobs.launcher(),
            "run",
            "-np",
            "2",
            "--min-np",
            "1",
            sys.executable,
            "-c",
            jobs.script_of(outlive_the_launcher),
        ],
        env={**os.environ, "FOLDER": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for([tmp_path / "trains.0", tmp_path / "trains.1"])
    launcher.kill()
    launcher.wait()
    # They commit without a store to look into, and end when they like.
    for path in tmp_path.glob("trains.*"):
        path.unlink()
    wait_for([tmp_path / "trains.0", tmp_path / "trains.1"])
    (tmp_path / "stop").touch()
    # The agent, which has the launcher's standard error, ends with its last rank.
    assert launcher.communicate(timeout=60)[1].count("the launcher is gone; 2 ranks") == 1
    wait_for([tmp_path / "done.0", tmp_path / "done.1"], 1)
