"""What operations on CUDA tensors take. Run by horo run; rank 0 prints a table. The clock is the host's, with the
device synchronised around each operation."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import horo.torch as hvd
from horo import _horo
from horo.torch.tensors import dtype_number, place_of
from horo.world import world

SIZES = [4, 64 << 10, 1 << 20, 16 << 20, 256 << 20]


def timed(body: Callable[[], object], rounds: int) -> float:
    """Median, in microseconds."""
    times = []
    for turn in range(rounds + 3):
        torch.cuda.synchronize()
        hvd.barrier()
        begin = time.perf_counter()
        body()
        torch.cuda.synchronize()
        if turn >= 3:
            times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def copy_bandwidth() -> float:
    """Bytes read and written in a second by a copy on the device."""
    source = torch.randn(256 << 18, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(20):
        target.copy_(source)
    end.record()
    torch.cuda.synchronize()
    return 2 * source.nbytes * 20 / (begin.elapsed_time(end) / 1e3)


def ordered(group: _horo.Group, tensor: torch.Tensor) -> Callable[[], None]:
    """As DistributedDataParallel reduces: without names that ranks agree about first."""
    address, (device, stream) = tensor.data_ptr(), place_of(tensor)
    arguments = {"dtype": dtype_number(tensor, "allreduce"), "count": tensor.numel(), "device": device}
    arguments["prescale"] = 1.0 / group.size
    return lambda: group.run(_horo.KINDS["allreduce"], address, address, stream=stream, **arguments)


def kernels(body: Callable[[], object], rounds: int = 5) -> None:
    """What the device did for it on this rank, by kernel."""
    body()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(rounds):
            body()
        torch.cuda.synchronize()
    for one in sorted(profile.key_averages(), key=lambda event: -event.device_time_total)[:6]:
        calls = one.count / rounds
        print(
            f"    {one.key[:40]:<40} {calls:5.1f} a turn, {one.device_time_total / rounds:9.1f} us a turn", flush=True
        )


def main() -> None:
    hvd.init()
    torch.cuda.set_device(0)
    with_gloo = "--gloo" in sys.argv
    if with_gloo:
        dist.init_process_group("gloo", init_method=f"file://{sys.argv[sys.argv.index('--gloo') + 1]}",
                                rank=hvd.rank(), world_size=hvd.size())  # fmt: skip
    copies = 0.0
    for rank in range(hvd.size()):
        hvd.barrier()
        if rank == hvd.rank() == 0:
            copies = copy_bandwidth()
        hvd.barrier()
    group = world.runtime.group(list(range(hvd.size())))
    rows = []
    for size in SIZES:
        tensor = torch.randn(max(size // 4, 1), device="cuda")
        rounds = 30 if size <= 1 << 20 else 10
        row = [size, timed(lambda t=tensor: hvd.allreduce_(t, op=hvd.Average, name="bench"), rounds)]
        shared = hvd.shared_empty(tensor.shape, device="cuda")
        row.append(timed(lambda t=shared: hvd.allreduce_(t, op=hvd.Average, name="shared"), rounds))
        row.append(timed(ordered(group, shared), rounds))
        row.append(
            timed(lambda t=tensor: dist.all_reduce(t), 3 if size > 1 << 24 else 5) if with_gloo else float("nan")
        )
        rows.append(row)
    many = [torch.randn(256 * 1024 // 300 * 256, device="cuda") for _ in range(300)]
    grouped = timed(lambda: hvd.grouped_allreduce_(many, op=hvd.Average, name="many"), 10)
    bytes_many = sum(one.nbytes for one in many)
    if hvd.rank() == 0:
        print(f"ranks {hvd.size()}, path {os.environ.get('HORO_DEVICE_PATH', 'auto')}, "
              f"copy bandwidth {copies / 1e12:.2f} TB/s")  # fmt: skip
        heads = ["horo", "of bound", "shared", "of bound", "ordered", "of bound", "gloo"]
        print(f"{'bytes':>12} " + " ".join(f"{head:>9}" for head in heads))
        for size, *times, gloo in rows:
            bound = 1e8 * 4 * size / copies
            shares = " ".join(f"{took:>9.1f} {bound / took:>8.1f}%" for took in times)
            print(f"{size:>12} {shares} {gloo:>9.1f}")
        print(f"300 tensors, {bytes_many >> 20} MiB: {grouped:.0f} us", flush=True)
    if "--kernels" in sys.argv and hvd.rank() == 0:
        print("300 tensors of", bytes_many, "bytes")
        kernels(lambda: hvd.grouped_allreduce_(many, op=hvd.Average, name="many"))
        print("one tensor of", tensor.nbytes, "bytes")
        kernels(lambda: hvd.allreduce_(tensor, op=hvd.Average, name="bench"))
        print("one shared tensor of", tensor.nbytes, "bytes")
        kernels(lambda: hvd.allreduce_(shared, op=hvd.Average, name="shared"))
    elif "--kernels" in sys.argv:
        for _ in range(6):
            hvd.grouped_allreduce_(many, op=hvd.Average, name="many")
        for _ in range(6):
            hvd.allreduce_(tensor, op=hvd.Average, name="bench")
        for _ in range(6):
            hvd.allreduce_(shared, op=hvd.Average, name="shared")
    del group
    hvd.shutdown()


if __name__ == "__main__":
    main()
