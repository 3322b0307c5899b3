"""A rank is killed in the middle of operations on the GPU: the others hear of it within a second, and go on; their
streams do, too, where these wait for results (HORO_ASYNC_COMPLETION=1)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import torch

import horo.torch as hvd
from horo.exceptions import HorovodInternalError


def main() -> int:
    hvd.init()
    torch.cuda.set_device(0)
    survivors = hvd.add_process_set([rank for rank in range(hvd.size()) if rank != hvd.size() - 1])
    tensor = torch.ones(16 << 20, device="cuda")
    if hvd.rank() != hvd.size() - 1:
        hvd.allreduce(tensor, name="apart", process_set=survivors)
    for step in range(5):
        hvd.allreduce_(tensor, name=f"step{step}")
    moment = hvd.broadcast_object(time.time(), root_rank=hvd.size() - 1) + 0.5
    step = 0
    try:
        while time.time() < moment + 10:
            if hvd.rank() == hvd.size() - 1 and time.time() > moment:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce_(tensor, name=f"more{step}")
            step += 1
    except HorovodInternalError as error:
        late = time.time() - moment
        torch.cuda.synchronize()
        print(f"rank {hvd.rank()}: after {step} operations, {1000 * late:.0f} ms late: {error}", flush=True)
        result = hvd.allreduce(torch.full((1 << 20,), 2.0, device="cuda"), name="after", process_set=survivors)
        right = bool((result == 2.0).all())
        print(f"rank {hvd.rank()}: the survivors go on: {right}", flush=True)
        return 0 if right and late < 1.5 else 1
    print(f"rank {hvd.rank()}: FAILED, nobody noticed", flush=True)
    return 1


def start(ranks: int) -> int:
    """Without a launcher, which would end the survivors."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        store = f"127.0.0.1:{probe.getsockname()[1]}"
    shared = {**os.environ, "HORO_SIZE": str(ranks), "HORO_STORE": store, "HORO_INTERFACE": "127.0.0.1"}
    all_ranks = [
        subprocess.Popen([sys.executable, __file__], env={**shared, "HORO_RANK": str(rank)}) for rank in range(ranks)
    ]
    codes = [one.wait(timeout=50) for one in all_ranks]
    print("exit codes", codes, flush=True)
    return 0 if codes == [0] * (ranks - 1) + [-signal.SIGKILL] else 1


if __name__ == "__main__":
    if "HORO_RANK" not in os.environ:
        sys.exit(start(3))
    code = main()
    sys.stdout.flush()
    os._exit(code)
