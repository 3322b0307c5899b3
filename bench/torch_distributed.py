"""Collectives and messages of torch.distributed on the back ends horo and gloo, in one run, in turns.

python bench/torch_distributed.py --ranks 2 --rounds 7
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import horo.torch  # noqa: F401  Makes the back end known.

BACKENDS = ("horo", "gloo")
SIZES = (4, 64 << 10, 1 << 20, 16 << 20)
SECONDS_EACH = 0.15


def allreduce(tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.all_reduce(tensor, group=group)


def allreduce_with_future(tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """As torch's DDP does."""
    dist.all_reduce(tensor, group=group, async_op=True).get_future().wait()


def ping_pong(tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    rank = dist.get_rank()
    if rank > 1:
        return
    for sender in (0, 1):
        if rank == sender:
            dist.send(tensor, 1 - rank, group=group)
        else:
            dist.recv(tensor, 1 - rank, group=group)


def measure(call: Callable[[], None], group: dist.ProcessGroup, rank: int) -> float:
    """Seconds for one, of as many as fit."""
    times = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        times += 1
    for _ in range(2):
        call()
    begin = time.perf_counter()
    call()
    times[0] = max(3, min(2000, int(SECONDS_EACH / max(time.perf_counter() - begin, 1e-6))))
    dist.broadcast(times, 0, group=group)
    dist.barrier(group)
    begin = time.perf_counter()
    for _ in range(int(times)):
        call()
    return (time.perf_counter() - begin) / int(times)


def run(rank: int, size: int, port: int, rounds: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    if rank == 0:
        print(f"{'':24} {'bytes':>9} " + " ".join(f"{name:>12}" for name in BACKENDS) + "   horo / gloo")
    for call in (allreduce, allreduce_with_future, ping_pong):
        for bytes_each in SIZES:
            tensor = torch.zeros(bytes_each // 4)
            found: dict[str, list[float]] = {name: [] for name in BACKENDS}
            for turn in range(rounds):
                for name in BACKENDS if turn % 2 else BACKENDS[::-1]:
                    found[name].append(measure(lambda c=call, t=tensor, g=groups[name]: c(t, g), groups[name], rank))
            if rank == 0:
                middle = [statistics.median(found[name]) for name in BACKENDS]
                words = " ".join(f"{one * 1e6:9.1f} us" for one in middle)
                print(f"{call.__name__:24} {bytes_each:9} {words}   {middle[0] / middle[1]:.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(run, (args.ranks, port, args.rounds), args.ranks)


if __name__ == "__main__":
    main()
