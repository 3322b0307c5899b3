"""MPI beside what it is measured against, in turns.

python bench/mpi.py allreduce --rounds 7      # 64 MiB on two ranks by name: horo run, mpirun, mpiexec
python bench/mpi.py operations --rounds 7     # 64 MiB on an ordered group over MPI, and MPI_Allreduce itself by mpi4py
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python"))

import launched
from jobs import launcher

import horo

RANKS = 2
BYTES = 64 << 20
ALLREDUCE, F32, SUM = 1, 10, 0
PEERS = {"mpirun": ("mpirun.openmpi", "openmpi"), "mpiexec": ("mpiexec.mpich", "mpich")}


def middles_of(ways: dict[str, Callable[[], None]], calls: int = 15) -> dict[str, float]:
    """The middle of the times of one, on the slower rank, in seconds. Ways take turns, so that a busy machine is busy
    for all of them."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(calls + 3):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            horo.barrier()
            begin = time.perf_counter()
            ways[name]()
            if number >= 3:
                times[name].append(time.perf_counter() - begin)
    slower = horo.allreduce(np.array([statistics.median(spent) for spent in times.values()]), op=horo.Max)
    return dict(zip(ways, slower.tolist(), strict=True))


def rank_allreduce() -> None:
    horo.init()
    array = np.zeros(BYTES // 4, np.float32)
    spent = middles_of({"allreduce": lambda: horo.allreduce_(array, op=horo.Sum, name="array")})
    if horo.rank() == 0:
        print(f"outcome: {spent['allreduce']}")


def rank_operations(rounds: int) -> None:
    from mpi4py import MPI

    from horo.world import world

    os.environ["HORO_CPU_OPERATIONS"] = "mpi"
    horo.init(comm=MPI.COMM_WORLD)
    group = world.runtime.group(list(range(horo.size())))
    array, result = np.zeros(BYTES // 4, np.float32), np.zeros(BYTES // 4, np.float32)
    addresses = array.ctypes.data, result.ctypes.data
    ways = {
        "MPI_Allreduce": lambda: MPI.COMM_WORLD.Allreduce(array, result),
        "horo over MPI": lambda: group.run(ALLREDUCE, *addresses, dtype=F32, op=SUM, count=array.size),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, middle in middles_of(ways, calls=7).items():
            spent[name].append(middle)
    if horo.rank() == 0:
        print(f"group over {group.transport()}")
        report(spent)


def report(spent: dict[str, list[float]]) -> None:
    first = statistics.median(next(iter(spent.values())))
    for name, times in spent.items():
        middle = statistics.median(times)
        span = f"{min(times) * 1e3:.2f} to {max(times) * 1e3:.2f}"
        print(f"{name:16} {middle * 1e3:8.2f} ms  ({span})  {middle / first:.3f}")


def run(command: list[str], *words: str, **settings: str) -> str:
    done = subprocess.run(
        [*command, sys.executable, str(Path(__file__).resolve()), *words],
        env=launched.environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def commands() -> dict[str, list[str]]:
    """Of the launchers that are installed; the others are named and left out."""
    found = {"horo run": [launcher(), "run", "-np", str(RANKS)]}
    for name, (program, family) in PEERS.items():
        if shutil.which(program) is None:
            print(f"{program} is not installed: left out")
            continue
        found[name] = launched.mpi_command(family, RANKS)
    if "mpirun" in found:
        found["mpirun"] += ["-bind-to", "none"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["allreduce", "operations", "rank-allreduce", "rank-operations"])
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    if given.what == "rank-allreduce":
        rank_allreduce()
    elif given.what == "rank-operations":
        rank_operations(given.rounds)
    elif given.what == "allreduce":
        found = commands()
        spent: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(given.rounds):
            for name, command in found.items():
                spent[name].append(float(run(command, "rank-allreduce").split("outcome:")[1]))
        report(spent)
    else:
        words = ["rank-operations", "--rounds", str(given.rounds)]
        for name, command in commands().items():
            if name not in PEERS:
                continue
            family = PEERS[name][1]
            with launched.mpi4py_finds(family) as settings:
                print(f"{family}\n{run(command, *words, **settings)}")


if __name__ == "__main__":
    main()
