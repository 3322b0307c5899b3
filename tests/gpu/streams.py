"""Results that streams wait for, and threads do not: a GPU that is busy for half a second must not stop its thread.

horo run -np 2 python tests/gpu/streams.py [STORE_FILE of torch's, for its process group]
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import horo.torch as hvd

SECONDS = 0.5
failures: list[str] = []


def cycles_per_second() -> float:
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    begin = time.monotonic()
    torch.cuda._sleep(100_000_000)
    torch.cuda.synchronize()
    return 100_000_000 / (time.monotonic() - begin)


def expect(right: bool, what: str) -> None:
    if not right:
        failures.append(what)
        print(f"rank {hvd.rank()}: FAILED: {what}", flush=True)


def while_busy(what: str, body: Callable[[], None], *, waits: bool = False) -> None:
    """Runs it behind half a second of work, and says how long the thread took."""
    for _ in range(3):
        body()
    torch.cuda.synchronize()
    hvd.barrier()
    torch.cuda._sleep(int(SECONDS * RATE))
    begin = time.monotonic()
    body()
    took = time.monotonic() - begin
    is_done = torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    if waits:
        expect(took > SECONDS / 2, f"{what}: the thread did not wait, {1000 * took:.0f} ms")
    else:
        expect(not is_done, f"{what}: the thread waited, {1000 * took:.0f} ms")
    if hvd.rank() == 0:
        print(
            f"{what}: {1000 * took:.1f} ms of the thread, {1000 * (time.monotonic() - begin):.0f} ms in all", flush=True
        )


def sums(count: int) -> Callable[[], None]:
    tensor = torch.empty(count, device="cuda")
    total = float(sum(range(1, hvd.size() + 1)))

    def body() -> None:
        tensor.fill_(hvd.rank() + 1.0)
        hvd.synchronize(hvd.allreduce_async_(tensor, name=f"sum{count}", op=hvd.Sum))
        wrong = (tensor != total).sum()
        results.append(wrong)

    return body


def many() -> Callable[[], None]:
    tensors = [torch.empty(1000 + 7 * i, device="cuda") for i in range(300)]

    def body() -> None:
        torch._foreach_zero_(tensors)  # One by one they would fill the stream: it takes about a thousand launches.
        torch._foreach_add_(tensors, hvd.rank() + 1.0)
        handles = [hvd.allreduce_async_(one, name=f"many{i}", op=hvd.Sum) for i, one in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)
        results.append((torch.cat(tensors) != float(sum(range(1, hvd.size() + 1)))).sum())

    return body


def model(layers: int = 6, width: int = 1024) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).cuda()


def training(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    data = torch.randn(64, 1024, device="cuda")

    def body() -> None:
        optimizer.zero_grad()
        net(data).square().mean().backward()
        optimizer.step()

    return body


def driver_waits() -> None:
    """The driver is made to wait for the device, with its locks, while streams wait for other ranks."""
    tensor = torch.ones(16 << 20, device="cuda")
    kernels = [torch.erfinv, torch.lgamma, torch.digamma, torch.i0, torch.sinc, torch.expm1]
    for turn in range(12):
        if turn % hvd.size() == hvd.rank():
            torch.cuda._sleep(int(0.05 * RATE))  # Ranks come to the steps at different times.
        hvd.synchronize(hvd.allreduce_async_(tensor, name="driver", op=hvd.Average))
        room = torch.empty((256 + 64 * turn) << 20, dtype=torch.uint8, device="cuda")
        room.zero_()
        del room
        torch.cuda.empty_cache()
        kernels[turn % len(kernels)](tensor[:100].double())  # Loaded lazily.
    results.append((tensor != 1.0).sum())


def two_groups() -> None:
    """Operations of two groups at once, on threads of their own, and the driver made to wait meanwhile."""

    def of_horo(tensor: torch.Tensor) -> None:
        hvd.synchronize(hvd.allreduce_async_(tensor, name="set", op=hvd.Average))

    def of_torch(tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)

    def work(reduce: Callable[[torch.Tensor], None]) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            tensor = torch.ones(4 << 20, device="cuda")
            for _ in range(60):
                reduce(tensor)
            wrong = (tensor != 1.0).sum()
        stream.synchronize()
        results.append(wrong)

    threads = [threading.Thread(target=work, args=(reduce,)) for reduce in (of_horo, of_torch)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()


def step(what: str, body: Callable[[], None]) -> None:
    begin = time.monotonic()
    body()
    torch.cuda.synchronize()
    if hvd.rank() == 0:
        print(f"{what}: {time.monotonic() - begin:.2f} s", flush=True)


hvd.init()
torch.cuda.set_device(0)
RATE = cycles_per_second()
results: list[torch.Tensor] = []
while_busy("synchronize() as Horovod's", sums(4 << 20), waits=True)
os.environ["HORO_ASYNC_COMPLETION"] = "1"
for count in (256 << 10, 4 << 20, 40 << 20):
    while_busy(f"synchronize() in the stream, {count * 4 >> 20} MiB", sums(count))
while_busy("300 tensors together", many())
net = model()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.01), net.named_parameters())
while_busy("DistributedOptimizer", training(net, optimizer))
net = model()
ddp = hvd.DistributedDataParallel(net, bucket_cap_mb=8)
while_busy("DistributedDataParallel", training(ddp, torch.optim.SGD(net.parameters(), lr=0.01)))
step("the driver is made to wait", driver_waits)
if len(sys.argv) > 1:
    dist.init_process_group("horo", init_method=f"file://{sys.argv[1]}", rank=hvd.rank(), world_size=hvd.size())
    tensor = torch.empty(8 << 20, device="cuda")

    def all_reduce() -> None:
        tensor.fill_(1.0)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        results.append((tensor != hvd.size()).sum())

    while_busy("work.wait()", all_reduce)
    step("two groups at once", two_groups)
expect(all(int(one) == 0 for one in results), "wrong sums")
hvd.barrier()
print(f"rank {hvd.rank()}: {len(results)} results, {len(failures)} failures", flush=True)
if len(sys.argv) > 1:
    dist.destroy_process_group()
hvd.shutdown()
sys.exit(1 if failures else 0)
