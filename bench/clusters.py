"""Ray and Spark beside what they are measured against, in one run, in turns.

python bench/clusters.py start --rounds 7          # HorovodTrainer.fit() and Ray's TorchTrainer.fit() of nothing
python bench/clusters.py allreduce --rounds 7      # 64 MiB on two ranks: horo run, RayExecutor, horo.spark.run
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python"))

import ray_cluster
import spark_session

RANKS = 2
BYTES = 64 << 20
CALLS = 15


def measure_allreduce(nbytes: int, calls: int) -> float:
    """The middle of the times of one, in seconds. Sent to where it runs, with all that it needs."""
    import statistics
    import time

    import numpy as np

    import horo

    horo.init()
    array = np.zeros(nbytes // 4, np.float32)
    times = []
    for call in range(calls + 3):
        horo.barrier()
        begin = time.perf_counter()
        horo.allreduce_(array, op=horo.Sum, name="array")
        if call >= 3:
            times.append(time.perf_counter() - begin)
    middle = float(horo.allreduce(np.array([statistics.median(times)]), op=horo.Max)[0])
    horo.shutdown()
    return middle


def by_launcher() -> float:
    program = [sys.executable, str(Path(__file__).resolve()), "rank"]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "horo"), "run", "-np", str(RANKS), *program],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split(":")[-1])


@contextlib.contextmanager
def allreduces() -> Iterator[dict[str, Callable[[], float]]]:
    import horo.spark
    from horo.ray import RayExecutor

    with ray_cluster.ray_cluster(), spark_session.spark_session():
        executor = RayExecutor(RayExecutor.create_settings(timeout_s=120), num_workers=RANKS)
        executor.start()
        try:
            yield {
                "horo run": by_launcher,
                "Ray": lambda: executor.run(measure_allreduce, [BYTES, CALLS])[0],
                "Spark": lambda: horo.spark.run(measure_allreduce, (BYTES, CALLS), num_proc=RANKS)[0],
            }
        finally:
            executor.shutdown()


@contextlib.contextmanager
def starts() -> Iterator[dict[str, Callable[[], float]]]:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from horo.ray import HorovodTrainer

    def nothing() -> None:
        pass

    def fit(trainer: type) -> float:
        begin = time.perf_counter()
        scaling, run_config = ScalingConfig(num_workers=RANKS), RunConfig(storage_path=storage)
        trainer(nothing, scaling_config=scaling, run_config=run_config).fit()
        return time.perf_counter() - begin

    with ray_cluster.ray_cluster(), tempfile.TemporaryDirectory() as storage:
        yield {"TorchTrainer": lambda: fit(TorchTrainer), "HorovodTrainer": lambda: fit(HorovodTrainer)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["start", "allreduce", "rank"])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    if args.what == "rank":
        middle = measure_allreduce(BYTES, CALLS)
        if os.environ["HORO_RANK"] == "0":
            print(middle)
        return
    with (starts if args.what == "start" else allreduces)() as contenders:
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for call in contenders.values():
            call()  # The first of each reads files and starts processes.
        for turn in range(args.rounds):
            for name in list(contenders)[:: 1 if turn % 2 else -1]:
                found[name].append(contenders[name]())
                print(f"round {turn}: {name} {found[name][-1] * 1e3:.1f} ms", file=sys.stderr, flush=True)
    first = statistics.median(next(iter(found.values())))
    for name, times in found.items():
        middle = statistics.median(times)
        spread = f"({min(times) * 1e3:.1f} .. {max(times) * 1e3:.1f})"
        print(f"{name:16} {middle * 1e3:9.1f} ms  {spread}  {middle / first:.2f}")


if __name__ == "__main__":
    main()
