"""What a rank keeps in memory while it trains: the proportional share (PSS) of each variant of bench/torch_step.py.

    python bench/torch_memory.py

Every variant has a job of its own, of two ranks that make eight steps of the 25 M-parameter MLP. What the C library
holds in reserve is given back first (malloc_trim), since it differs from run to run.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys

import torch_step

STEPS = 8


def share_in_memory() -> float:
    """MiB. What several processes share counts in equal parts."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"^Pss:\s+(\d+)", file.read(), re.MULTILINE)[1]) / 1024


def train(name: str) -> None:
    import horo.torch as hvd

    hvd.init()
    torch_step.start_gloo()
    make, width = torch_step.MODELS["mlp"]
    variant = torch_step.Variant(name, make, width)
    for _ in range(STEPS):
        variant.step()
    hvd.barrier()
    shares = hvd.allgather_object(share_in_memory())
    if hvd.rank() == 0:
        print(f"{name:<20}{max(shares):6.0f} MiB")


def main() -> None:
    for name in torch_step.VARIANTS:
        command = ["horo", "run", "-np", "2", sys.executable, __file__, name]
        done = subprocess.run(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        print(re.search(r"^\S*?([a-z][\w-]* +\d+ MiB)$", done.stdout, re.MULTILINE)[1], flush=True)


if __name__ == "__main__":
    train(sys.argv[1]) if len(sys.argv) > 1 else main()
