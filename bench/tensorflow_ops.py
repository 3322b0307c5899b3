#!/usr/bin/env python3
"""horo.tensorflow beside the library alone, in one run: horo run -np 2 python bench/tensorflow_ops.py

In each round every contender has one turn; a figure is the median of the rounds' medians, of the slowest rank. Latency:
a tf.function of 100 allreduces of 4 bytes, each of which needs the one before it; the library's is the same number of
calls of its C interface. Bandwidth: 64 MiB of f32 into memory that is new each time; the results are checked.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import horo
import horo.tensorflow as hvd

CHAIN = 100
TURNS = 10
LARGE_TURNS = 5
LARGE_COUNT = 16 << 20


class Tensor(ctypes.Structure):
    """horo_tensor of horo.h."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("op", ctypes.c_int),
        ("root", ctypes.c_int),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dimensions", ctypes.c_size_t),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("splits", ctypes.c_void_p),
        ("split_count", ctypes.c_size_t),
        ("allocate", ctypes.c_void_p),
        ("allocate_context", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
    )


class Library:
    """The C interface, called without anything in between."""

    def __init__(self) -> None:
        self._run = ctypes.CDLL(str(horo.library_path())).horo_runtime_run
        self._run.restype = ctypes.c_void_p
        acquire = ctypes.CDLL(str(horo.library_path())).horo_runtime_acquire
        acquire.restype = ctypes.c_void_p
        self._runtime = ctypes.c_void_p(acquire())

    def allreduce(self, given: np.ndarray, into: np.ndarray, times: int) -> None:
        shape = (ctypes.c_int64 * 1)(given.size)
        tensor = Tensor(
            ctypes.sizeof(Tensor), b"library", 1, 10, 0, 0, 1.0, 1.0, shape, 1, given.ctypes.data, into.ctypes.data
        )
        place = ctypes.byref(tensor)
        for _ in range(times):
            assert not self._run(self._runtime, 0, place, ctypes.c_size_t(1), None)


def chain() -> Callable[[], float]:
    @tf.function
    def many(x: tf.Tensor) -> tf.Tensor:
        for index in range(CHAIN):
            x = hvd.allreduce(x, op=hvd.Max, name=f"chain.{index}")
        return x

    x = tf.constant([float(hvd.rank())])

    def turn() -> float:
        assert many(x).numpy()[0] == hvd.size() - 1
        hvd.barrier()
        begin = time.perf_counter()
        for _ in range(TURNS):
            many(x)
        return (time.perf_counter() - begin) / TURNS / CHAIN * 1e6

    return turn


def chain_of_library(library: Library) -> Callable[[], float]:
    x = np.zeros(1, np.float32)

    def turn() -> float:
        library.allreduce(x, x, CHAIN)
        hvd.barrier()
        begin = time.perf_counter()
        library.allreduce(x, x, TURNS * CHAIN)
        return (time.perf_counter() - begin) / TURNS / CHAIN * 1e6

    return turn


def timed(run: Callable[[], object], turns: int) -> float:
    times = []
    for _ in range(turns + 1):
        hvd.barrier()
        begin = time.perf_counter()
        kept = run()
        times.append((time.perf_counter() - begin) * 1e3)
        del kept
    return statistics.median(times[1:])


def large() -> Callable[[], float]:
    @tf.function
    def reduce(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x, op=hvd.Sum, name="large")

    x = tf.fill([LARGE_COUNT], float(hvd.rank()))

    def turn() -> float:
        got = reduce(x)
        assert float(got[0]) == float(got[-1]) == hvd.size() * (hvd.size() - 1) / 2
        del got
        return timed(lambda: reduce(x), LARGE_TURNS)

    return turn


def large_of_library(library: Library) -> Callable[[], float]:
    x = np.full(LARGE_COUNT, hvd.rank(), np.float32)

    def reduce() -> np.ndarray:
        into = np.empty_like(x)
        library.allreduce(x, into, 1)
        return into

    def turn() -> float:
        got = reduce()
        assert got[0] == got[-1] == hvd.size() * (hvd.size() - 1) / 2
        del got
        return timed(reduce, LARGE_TURNS)

    return turn


def go_first() -> None:
    """Puts all threads of this process before everything else on the machine."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # It has ended.
            os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--first", action="store_true", help="before all others who use the machine; needs root")
    parser.add_argument("--json", help="a file for the figures")
    arguments = parser.parse_args()
    hvd.init()
    library = Library()
    contenders = {
        "4 B, in a tf.function [us]": chain(),
        "4 B, the library [us]": chain_of_library(library),
        "64 MiB, in a tf.function [ms]": large(),
        "64 MiB, the library [ms]": large_of_library(library),
    }
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in contenders.values():
        turn()
    if arguments.first:
        go_first()
    for _ in range(arguments.rounds):
        for name, turn in contenders.items():
            figures[name].append(max(hvd.allgather_object(turn())))
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, {os.cpu_count()} cores, TensorFlow {tf.__version__}, {arguments.rounds} rounds")
        for name, values in figures.items():
            print(f"{name:34} {statistics.median(values):10.1f}   ({min(values):.1f} .. {max(values):.1f})")
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
