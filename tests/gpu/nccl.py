"""What horo adds to NCCL, with one rank: raw calls of NCCL, the same operation of an ordered group, and of horo.torch,
in turns. Run by horo run -np 1 with HORO_DEVICE_PATH=nccl; prints a table, and fails on a wrong result.

Averages of one rank are looked at closely: NCCL's own leave out some elements at the end, horo's must not."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable

import torch

import horo.torch as hvd
from horo.torch.tensors import current_stream
from horo.world import world

ROUNDS = 9
ALLREDUCE, F32 = 1, 10  # Of horo.h.
NCCL_FLOAT, NCCL_SUM, NCCL_AVERAGE, NCCL_IN_PROGRESS = 7, 0, 4, 7
Allreduce = Callable[[torch.Tensor, torch.Tensor], None]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def check(code: int, what: str) -> None:
    if code != 0:
        raise RuntimeError(f"{what} returned {code}")


class Config(ctypes.Structure):
    """The beginning of NCCL's, as the plugin has it."""

    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("blocking", ctypes.c_int), ("rest", ctypes.c_int * 3), ("network", ctypes.c_char_p)]  # fmt: skip


def raw_allreduce(op: int = NCCL_SUM, *, blocking: bool = True) -> Allreduce:
    library = ctypes.CDLL("libnccl.so.2")  # Which torch has loaded.
    library.ncclCommInitRankConfig.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int, ctypes.c_void_p]
    library.ncclCommGetAsyncError.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                      ctypes.c_void_p, ctypes.c_void_p]  # fmt: skip
    unique, communicator, state = UniqueId(), ctypes.c_void_p(), ctypes.c_int(NCCL_IN_PROGRESS)
    absent = -(2**31)
    config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 21700, int(blocking), (ctypes.c_int * 3)(*[absent] * 3), None)

    def settled(code: int, what: str) -> None:
        while code == NCCL_IN_PROGRESS:
            library.ncclCommGetAsyncError(communicator, ctypes.byref(state))
            code = state.value
        check(code, what)

    check(library.ncclGetUniqueId(ctypes.byref(unique)), "ncclGetUniqueId")
    made = library.ncclCommInitRankConfig(ctypes.byref(communicator), 1, unique, 0, ctypes.byref(config))
    settled(made, "ncclCommInitRankConfig")
    stream = torch.cuda.Stream()

    def allreduce(given: torch.Tensor, result: torch.Tensor) -> None:
        settled(library.ncclAllReduce(given.data_ptr(), result.data_ptr(), given.numel(), NCCL_FLOAT, op, communicator,
                                      stream.cuda_stream), "ncclAllReduce")  # fmt: skip
        stream.synchronize()

    return allreduce


def unwritten(way: Allreduce, count: int) -> int:
    """How many elements of a result are not what was given."""
    given = torch.randn(count, device="cuda")
    result = torch.full_like(given, float("nan"))
    torch.cuda.synchronize()
    way(given, result)
    torch.cuda.synchronize()
    return int((given != result).sum())


def averages() -> int:
    """Of one rank: NCCL's, for information, and horo's."""
    raw, failures = raw_allreduce(NCCL_AVERAGE), 0

    def ours(given: torch.Tensor, result: torch.Tensor) -> None:
        result.copy_(hvd.allreduce(given, op=hvd.Average, name="average"))

    for count in (1, 4097, 70_001, 262_145, 1_000_003):
        left_out = unwritten(ours, count)
        failures += left_out > 0
        print(f"average of {count} f32 by one rank, not written: NCCL {unwritten(raw, count)}, horo {left_out}",
              "FAILED" if left_out else "", flush=True)  # fmt: skip
    return failures


def group_allreduce() -> Allreduce:
    group = world.runtime.group([0])

    def allreduce(given: torch.Tensor, result: torch.Tensor) -> None:
        stream = current_stream(given.get_device())
        group.run(ALLREDUCE, given.data_ptr(), result.data_ptr(), dtype=F32, count=given.numel(), device=0,
                  stream=stream)  # fmt: skip

    return allreduce


def named_allreduce(given: torch.Tensor, result: torch.Tensor) -> None:
    result.copy_(hvd.allreduce(given, op=hvd.Sum, name="bench"))


def timed(way: Allreduce, given: torch.Tensor, result: torch.Tensor, times: int) -> float:
    """Microseconds a turn."""
    begin = time.perf_counter()
    for _ in range(times):
        way(given, result)
    return 1e6 * (time.perf_counter() - begin) / times


def main() -> int:
    hvd.init()
    torch.cuda.set_device(0)
    ways = {
        "raw": raw_allreduce(),
        "raw blocking=0": raw_allreduce(blocking=False),
        "group": group_allreduce(),
        "horo.torch": named_allreduce,
    }
    failures = averages()
    print(f"{'bytes':>12}" + "".join(f"{name + ' us':>18}" for name in ways) + "   group less raw, us")
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
        print(f"{size:>12}" + "".join(f"{medians[name]:>18.1f}" for name in ways) + f"{more:>21.1f}", flush=True)
    hvd.shutdown()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
