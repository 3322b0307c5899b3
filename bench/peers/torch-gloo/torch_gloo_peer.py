#!/usr/bin/env python3
"""torch.distributed over gloo, measured by `horo bench --peers torch-gloo` (protocol: cli/bench/protocol.h).

horo_peer_torch-gloo launch FOLDER RANKS [--tcp] [--yield] [--host NAMESPACE ADDRESS]...
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from dataclasses import dataclass, field

PERIOD = 65537
BATCHES = 5
MASK = (1 << 64) - 1
CLONE_NEWNET = 0x40000000


@dataclass
class Launch:
    folder: str
    ranks: int
    hosts: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def read(cls, words: list[str]) -> Launch:
        launch = cls(words[0], int(words[1]))
        for i, word in enumerate(words):
            if word == "--host":
                launch.hosts.append((words[i + 1], words[i + 2]))
        return launch


class Unsupported(Exception):
    """Leaves this measurement out."""


class Rank:
    def __init__(self, torch, rank: int, size: int) -> None:
        self.torch, self.dist = torch, torch.distributed
        self.rank, self.size = rank, size
        self.dtypes = {
            "f32": torch.float32,
            "f64": torch.float64,
            "f16": torch.float16,
            "bf16": torch.bfloat16,
            "i32": torch.int32,
            "i64": torch.int64,
        }

    def shift(self, seed: int, rank: int, turn: int) -> int:
        mixed = (seed + rank * 0x9E3779B97F4A7C15 + turn * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return (mixed ^ (mixed >> 31)) % PERIOD

    def data(self, command: dict, rank: int, turn: int, count: int):
        """What `rank` puts in: small whole numbers, so that sums are exact in any order."""
        generator = self.torch.Generator().manual_seed(int(command["seed"]))
        digits = self.torch.randint(-7, 8, (PERIOD,), generator=generator).to(self.dtypes[command["dtype"]])
        start = self.shift(int(command["seed"]), rank, turn)
        return digits.roll(-start).repeat(count // PERIOD + 1)[:count]

    def operate(self, command: dict, source, target) -> None:
        op = command["op"]
        if op == "allreduce":
            if source is not target:
                target.copy_(source)
            self.dist.all_reduce(target)
        elif op == "reduce":
            if source is not target:
                target.copy_(source)
            self.dist.reduce(target, 0)
        elif op == "broadcast":
            self.dist.broadcast(target, 0)
        elif op == "allgather":
            self.dist.all_gather_into_tensor(target, source)
        elif op == "alltoall":
            self.dist.all_to_all_single(target, source)
        elif op == "reducescatter":
            self.dist.reduce_scatter_tensor(target, source)
        elif op == "gather":
            self.dist.gather(source, list(target.chunk(self.size)) if self.rank == 0 else None, 0)
        elif op == "scatter":
            self.dist.scatter(target, list(source.chunk(self.size)) if self.rank == 0 else None, 0)
        elif op == "sendrecv":
            if self.rank == 0:
                self.dist.send(source, self.size - 1)
            elif self.rank == self.size - 1:
                self.dist.recv(target, 0)
        else:
            self.dist.barrier()

    def expected(self, command: dict, turn: int, count: int):
        op, me = command["op"], self.rank
        share = count // self.size
        everyone = range(self.size)
        if op in ("allreduce", "reduce"):
            return sum(self.data(command, rank, turn, count) for rank in everyone)
        if op in ("broadcast", "sendrecv"):
            return self.data(command, 0, turn, count)
        if op == "scatter":
            return self.data(command, 0, turn, count)[me * share : (me + 1) * share]
        if op in ("allgather", "gather"):
            return self.torch.cat([self.data(command, rank, turn, share) for rank in everyone])
        if op == "alltoall":
            parts = [self.data(command, rank, turn, count)[me * share : (me + 1) * share] for rank in everyone]
            return self.torch.cat(parts)
        return sum(self.data(command, rank, turn, count) for rank in everyone)[me * share : (me + 1) * share]

    def check(self, command: dict, turn: int, target, count: int) -> None:
        op = command["op"]
        idle = (op in ("reduce", "gather") and self.rank != 0) or (op == "sendrecv" and self.rank != self.size - 1)
        if op == "barrier" or idle:
            return
        if not self.torch.equal(target, self.expected(command, turn, count)):
            raise RuntimeError(f"WRONG RESULT of {command['op']} on rank {self.rank}")

    def measure(self, command: dict) -> str:
        if command["dtype"] not in self.dtypes or command["library"] == "1":
            raise Unsupported(f"torch has no {command['dtype']} here, or no memory of its own")
        count, op = int(command["count"]), command["op"]
        if op in ("wait", "idle"):
            raise Unsupported(f"torch's ranks do not measure {op}")
        begin = time.process_time()
        batch = command["mode"] == "batch"
        in_place = op == "broadcast" or (command["in_place"] == "1" and not batch)
        share = count // self.size
        inputs = share if op in ("allgather", "gather") else count
        outputs = share if op in ("reducescatter", "scatter") else count
        dtype = self.dtypes[command["dtype"]]
        source = self.torch.ones(inputs, dtype=dtype)
        target = source if in_place else self.torch.ones(outputs, dtype=dtype)
        fresh = [self.data(command, self.rank, turn, inputs) for turn in range(2)]
        repeats = int(command["iterations"]) if batch else 1
        turns = BATCHES if batch else int(command["iterations"])
        times, spent = [], 0.0
        for turn in range(-1, turns):
            source.copy_(fresh[turn % 2])
            self.dist.barrier()
            cpu, start = time.process_time(), time.monotonic_ns()
            for _ in range(repeats):
                self.operate(command, source, target)
            end = time.monotonic_ns()
            if turn >= 0:
                spent += time.process_time() - cpu
                times.append((end - start) // repeats)
            if turn in (0, turns - 1):
                self.check(command, turn % 2, target, count)
        total = time.process_time() - begin
        return f"ok transport=tcp algorithm=- cpu={spent} total_cpu={total} times={','.join(map(str, times))}"


def serve(launch: Launch, number: int) -> None:
    replies = os.open(f"{launch.folder}/replies.{number}", os.O_WRONLY)

    def say(line: str) -> None:
        data = (line.replace("\n", " ") + "\n").encode()
        while data:
            data = data[os.write(replies, data) :]

    try:
        import torch
        import torch.distributed

        torch.set_num_threads(1)
        store = torch.distributed.FileStore(f"{launch.folder}/store", launch.ranks)
        torch.distributed.init_process_group("gloo", store=store, rank=number, world_size=launch.ranks)
    except Exception as error:
        say(f"error torch: {error}")
        return
    rank = Rank(torch, number, launch.ranks)
    say("ok transport=tcp algorithm=- cpu=0 total_cpu=0 times=")
    with open(f"{launch.folder}/commands.{number}") as commands:
        for line in commands:
            if line.strip() == "quit":
                break
            try:
                say(rank.measure(dict(word.split("=", 1) for word in line.split()[1:])))
            except Unsupported as why:
                say(f"unsupported {why}")
            except Exception as error:
                say(f"error torch: {error}")
                break


def enter(launch: Launch, rank: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, signal.SIGKILL)
    interface = "lo"
    if launch.hosts:
        name = launch.hosts[rank * len(launch.hosts) // launch.ranks][0]
        with open(f"/run/netns/{name}") as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {name}")
        interface = "eth0"
    os.environ["GLOO_SOCKET_IFNAME"] = interface


def main() -> int:
    if len(sys.argv) < 4 or sys.argv[1] != "launch":
        print(__doc__, file=sys.stderr)
        return 2
    launch = Launch.read(sys.argv[2:])
    for rank in range(launch.ranks):
        if os.fork() == 0:
            enter(launch, rank)
            serve(launch, rank)
            os._exit(0)
    for _ in range(launch.ranks):
        os.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
