"""What horo adds to NCCL, with one rank: raw calls of NCCL, the same operation of an ordered group, and of horo.torch,
in turns. Run by horo run -np 1 with HORO_DEVICE_PATH=nccl; prints a table, and fails on a wrong result."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable

import torch

import horo.torch as hvd
from horo.world import world

ROUNDS = 9
ALLREDUCE, F32 = 1, 10  # Of horo.h.
NCCL_FLOAT, NCCL_SUM = 7, 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def check(code: int, what: str) -> None:
    if code != 0:
        raise RuntimeError(f"{what} returned {code}")


def raw_allreduce() -> Callable[[torch.Tensor, torch.Tensor], None]:
    library = ctypes.CDLL("libnccl.so.2")  # Which torch has loaded.
    library.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    library.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                      ctypes.c_void_p, ctypes.c_void_p]  # fmt: skip
    unique, communicator = UniqueId(), ctypes.c_void_p()
    check(library.ncclGetUniqueId(ctypes.byref(unique)), "ncclGetUniqueId")
    check(library.ncclCommInitRank(ctypes.byref(communicator), 1, unique, 0), "ncclCommInitRank")
    stream = torch.cuda.Stream()

    def allreduce(given: torch.Tensor, result: torch.Tensor) -> None:
        check(library.ncclAllReduce(given.data_ptr(), result.data_ptr(), given.numel(), NCCL_FLOAT, NCCL_SUM,
                                    communicator, stream.cuda_stream), "ncclAllReduce")  # fmt: skip
        stream.synchronize()

    return allreduce


def group_allreduce() -> Callable[[torch.Tensor, torch.Tensor], None]:
    group = world.runtime.group([0])

    def allreduce(given: torch.Tensor, result: torch.Tensor) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        group.run(ALLREDUCE, given.data_ptr(), result.data_ptr(), dtype=F32, count=given.numel(), device=0,
                  stream=stream)  # fmt: skip

    return allreduce


def named_allreduce(given: torch.Tensor, result: torch.Tensor) -> None:
    result.copy_(hvd.allreduce(given, op=hvd.Sum, name="bench"))


def timed(
    way: Callable[[torch.Tensor, torch.Tensor], None], given: torch.Tensor, result: torch.Tensor, times: int
) -> float:
    """Microseconds a turn."""
    begin = time.perf_counter()
    for _ in range(times):
        way(given, result)
    return 1e6 * (time.perf_counter() - begin) / times


def main() -> int:
    hvd.init()
    torch.cuda.set_device(0)
    ways = {"raw": raw_allreduce(), "group": group_allreduce(), "horo.torch": named_allreduce}
    failures = 0
    print(f"{'bytes':>12}" + "".join(f"{name + ' us':>15}" for name in ways) + "   group less raw, us")
    for size in (4, 1 << 20, 64 << 20):
        given = torch.randn(size // 4, device="cuda")
        result = torch.empty_like(given)
        torch.cuda.synchronize()
        for name, way in ways.items():
            result.zero_()
            torch.cuda.synchronize()
            way(given, result)
            torch.cuda.synchronize()
            if not torch.equal(given, result):
                failures += 1
                print(f"FAILED {name} of {size} bytes")
        times = 100 if size < 1 << 24 else 20
        rounds = [{name: timed(way, given, result, times) for name, way in ways.items()} for _ in range(ROUNDS)]
        medians = {name: statistics.median(one[name] for one in rounds) for name in ways}
        more = statistics.median(one["group"] - one["raw"] for one in rounds)
        print(f"{size:>12}" + "".join(f"{medians[name]:>15.1f}" for name in ways) + f"{more:>21.1f}", flush=True)
    hvd.shutdown()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
