#!/usr/bin/env python3
"""horo.torch beside gloo and the library alone, in one run: horo run -np 2 python bench/torch_ops.py

In each round every contender has one turn, so that what disturbs the machine disturbs all; a figure is the median of
the rounds' medians, of the slowest rank. Latency: 4 bytes, handed in and waited for, one after the other. Bandwidth:
64 MiB of f32, in place, after a barrier; the results are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

import horo.torch as hvd

SMALL_TURNS = 2000
# Before they count: after a turn of another contender both ranks may be on one core, and the system takes some of its
# ticks to move one of them.
WARM_TURNS = 2000
LARGE_TURNS = 5
LARGE_COUNT = 16 << 20
HANDED_IN = "4 B, horo: allreduce_async_ + synchronize [us]"
BY_NAME = "4 B, the library by name [us]"
ORDERED = "4 B, the library ordered [us]"
LARGE, LARGE_LIBRARY, LARGE_GLOO = (
    "64 MiB, horo: allreduce_ [ms]",
    "64 MiB, the library [ms]",
    "64 MiB, gloo: all_reduce [ms]",
)


def start_gloo() -> None:
    port = 0
    if hvd.rank() == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(hvd.broadcast_object(port)))
    dist.init_process_group("gloo", rank=hvd.rank(), world_size=hvd.size())


def small(operation: Callable[[torch.Tensor, bool], object]) -> float:
    """Microseconds of one operation of 4 bytes, one after the other; the greatest, which stays what it is."""
    tensor = torch.tensor([float(hvd.rank())])
    for _ in range(WARM_TURNS):
        operation(tensor, True)
    assert tensor.item() == hvd.size() - 1
    hvd.barrier()
    begin = time.perf_counter()
    for _ in range(SMALL_TURNS):
        operation(tensor, True)
    return (time.perf_counter() - begin) / SMALL_TURNS * 1e6


def large(operation: Callable[[torch.Tensor, bool], object]) -> float:
    """Milliseconds of one operation of 64 MiB."""
    tensor = torch.empty(LARGE_COUNT)
    times = []
    for turn in range(LARGE_TURNS + 1):
        tensor.fill_(hvd.rank() + turn)
        hvd.barrier()
        begin = time.perf_counter()
        operation(tensor, False)
        times.append((time.perf_counter() - begin) * 1e3)
        wanted = hvd.size() * (hvd.size() - 1) / 2 + turn * hvd.size()
        assert tensor[0] == tensor[-1] == wanted, (tensor[0], tensor[-1], wanted)
    return statistics.median(times[1:])


class Library:
    """The same in C++, in jobs of their own, which the first rank starts while the ranks of this one sleep."""

    def __init__(self) -> None:
        # Those of a rank of this job must not reach the others.
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HORO_", "HOROVOD_"))
        }

    def measure(self) -> dict[str, float]:
        found: dict[str, float] = {}
        if hvd.rank() == 0:
            with tempfile.TemporaryDirectory() as name:
                found = self._small(Path(name)) | self._large(Path(name) / "large.json")
        return hvd.broadcast_object(found)

    def _small(self, folder: Path) -> dict[str, float]:
        """4 bytes, in a row: by name, as tensors of torch are handed in, and ordered, as in a process group."""
        options = {"rounds": 1, "operations": 0, "idle-seconds": 0.01, "seed": 1, "report": folder}
        rank = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._run("run", "-np", hvd.size(), "horo", "bench-engine-rank", *rank)
        ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(hvd.size())]
        slowest = {path: max(one["rounds"][0][path]["row_us"] for one in ranks) for path in ("negotiated", "ordered")}
        return {BY_NAME: slowest["negotiated"], ORDERED: slowest["ordered"]}

    def _large(self, file: Path) -> dict[str, float]:
        self._run("bench", "allreduce", "-np", hvd.size(), "--sizes", 4 * LARGE_COUNT, "--rounds", 1, "--json", file)
        return {LARGE_LIBRARY: json.loads(file.read_text())["results"][0]["contenders"][0]["median_us"] / 1e3}

    def _run(self, *arguments: object) -> None:
        command = ["horo", *map(str, arguments)]
        subprocess.run(command, env=self._environment, check=True, timeout=60, stdout=subprocess.DEVNULL)


def handed_in(tensor: torch.Tensor, greatest: bool) -> None:
    hvd.synchronize(hvd.allreduce_async_(tensor, name="bench", op=hvd.Max if greatest else hvd.Sum))


def waiting(tensor: torch.Tensor, greatest: bool) -> None:
    hvd.allreduce_(tensor, name="bench", op=hvd.Max if greatest else hvd.Sum)


def gloo_handed_in(tensor: torch.Tensor, greatest: bool) -> None:
    dist.all_reduce(tensor, dist.ReduceOp.MAX if greatest else dist.ReduceOp.SUM, async_op=True).wait()


def gloo_waiting(tensor: torch.Tensor, greatest: bool) -> None:
    dist.all_reduce(tensor, dist.ReduceOp.MAX if greatest else dist.ReduceOp.SUM)


def print_against_library(medians: dict[str, float]) -> None:
    print(f"{'4 B, allreduce_async_ + synchronize beyond it [us]':50} {medians[HANDED_IN] - medians[BY_NAME]:10.1f}")
    here, there = (medians[LARGE_GLOO] / medians[name] for name in (LARGE, LARGE_LIBRARY))
    print(f"{'64 MiB, times as fast as gloo':50} {here:10.2f}   (the library: {there:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", help="a file for the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    start_gloo()
    contenders = {
        HANDED_IN: lambda: small(handed_in),
        "4 B, horo: allreduce_ [us]": lambda: small(waiting),
        "4 B, gloo: all_reduce(async_op) + wait [us]": lambda: small(gloo_handed_in),
        "4 B, gloo: all_reduce [us]": lambda: small(gloo_waiting),
        LARGE: lambda: large(waiting),
        LARGE_GLOO: lambda: large(gloo_waiting),
    }
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    library = Library()
    for _ in range(arguments.rounds):
        for name, turn in contenders.items():
            figures[name].append(max(hvd.allgather_object(turn())))
        for name, value in library.measure().items():
            figures.setdefault(name, []).append(value)
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, {os.cpu_count()} cores, torch {torch.__version__}, {arguments.rounds} rounds")
        for name, values in figures.items():
            print(f"{name:50} {statistics.median(values):10.1f}   ({min(values):.1f} .. {max(values):.1f})")
        print_against_library({name: statistics.median(values) for name, values in figures.items()})
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(figures, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
