"""Every operation on CUDA tensors gives the bits that it gives on CPU tensors. Run by horo run, all ranks on one GPU.

Prints one line per failure and a count at the end; exits with 1 if there was any.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

import torch

import horo.torch as hvd

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
BY_NCCL = os.environ.get("HORO_DEVICE_PATH") == "nccl"
SIZES = [0, 1, 7, 1000, 70_001, 262_144]
counts = {"checks": 0, "failures": 0}


def say(*words: object) -> None:
    print(f"rank {hvd.rank()}:", *words, flush=True)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(left.cpu().contiguous().view(torch.uint8), right.cpu().contiguous().view(torch.uint8))


def nearly_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """NCCL rounds what is scaled more often."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.allclose(left.cpu(), right, rtol=4 * torch.finfo(left.dtype).eps, atol=0)


def check(what: str, got: object, expected: object) -> None:
    counts["checks"] += 1
    same = nearly_same if BY_NCCL and what.startswith("scaled") else same_bits
    lists = isinstance(got, (list, tuple))
    pairs = zip(got, expected, strict=True) if lists else [(got, expected)]
    for one, other in pairs:
        if not one.is_cuda and one.numel() and what != "splits":
            counts["failures"] += 1
            say("FAILED", what, "result is not on the GPU")
        elif not same(one, other):
            counts["failures"] += 1
            a, b = one.cpu().flatten(), other.flatten()
            at = (a != b).nonzero().flatten()[:3].tolist() if a.shape == b.shape else (one.shape, other.shape)
            say("FAILED", what, "at", at, "got", [a[i].item() for i in at] if a.shape == b.shape else "",
                "expected", [b[i].item() for i in at] if a.shape == b.shape else "")  # fmt: skip


def attempt(what: str, body: Callable[[str], None]) -> None:
    try:
        body(what)
    except Exception:
        counts["failures"] += 1
        say("FAILED", what, traceback.format_exc(limit=6))


def random(shape: object, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + hvd.rank())
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex128).to(dtype)
    low = 0 if dtype in (torch.uint8, torch.bool) else -9
    return torch.randint(low, 2 if dtype is torch.bool else 10, shape, generator=generator).to(dtype)


def reductions(dtype: torch.dtype) -> list[tuple[str, int]]:
    if dtype.is_complex:
        return [("sum", hvd.Sum), ("average", hvd.Average), ("product", hvd.Product)]
    if dtype is torch.bool:
        return [("sum", hvd.Sum), ("min", hvd.Min)]
    return [("sum", hvd.Sum), ("average", hvd.Average), ("min", hvd.Min), ("max", hvd.Max), ("product", hvd.Product)]


def allreduces(dtype: torch.dtype) -> None:
    for name, op in reductions(dtype):
        for size in SIZES if op == hvd.Sum else SIZES[3:5]:

            def body(what: str, size: int = size, op: int = op) -> None:
                given = random((size,), dtype, size)
                check(what, hvd.allreduce(given.cuda(), op=op), hvd.allreduce(given, op=op))
                inplace = given.cuda()
                check(what + " in place", hvd.allreduce_(inplace, op=op), hvd.allreduce(given, op=op))

            attempt(f"allreduce {name} of {size} {dtype}", body)
    if dtype.is_floating_point:

        def scaled(what: str) -> None:
            for size in (1000, 70_001):
                given = random((size,), dtype, 3)
                for op in (hvd.Sum, hvd.Average, hvd.Max):
                    arguments = {"op": op, "prescale_factor": 0.3, "postscale_factor": 1.7}
                    check(f"{what} {op}", hvd.allreduce(given.cuda(), **arguments), hvd.allreduce(given, **arguments))

        attempt(f"scaled allreduce of {dtype}", scaled)


def moves(dtype: torch.dtype) -> None:
    size, rank = hvd.size(), hvd.rank()

    def broadcast(what: str) -> None:
        for count in (1, 1000, 70_001):
            given = random((count,), dtype, 5)
            root = size - 1
            check(what, hvd.broadcast(given.cuda(), root), hvd.broadcast(given, root))
            check(what + " in place", hvd.broadcast_(given.cuda(), 0), hvd.broadcast(given, 0))

    def allgather(what: str) -> None:
        for rows in (2 + rank, 50_000 + rank, 0 if rank == 0 else 3):
            given = random((rows, 3), dtype, 6)
            check(what, hvd.allgather(given.cuda()), hvd.allgather(given))

    def alltoall(what: str) -> None:
        for each in (1, 20_000):
            given = random((each * size, 2), dtype, 7)
            check(what, hvd.alltoall(given.cuda()), hvd.alltoall(given))
            splits = torch.tensor([each + (1 if i == rank else 0) for i in range(size)], dtype=torch.int32)
            uneven = random((int(splits.sum()), 2), dtype, 8)
            got, received = hvd.alltoall(uneven.cuda(), splits)
            expected, should = hvd.alltoall(uneven, splits)
            check(what + " uneven", got, expected)
            check("splits", received, should)

    for name, body in (("broadcast", broadcast), ("allgather", allgather), ("alltoall", alltoall)):
        attempt(f"{name} of {dtype}", body)


def reducescatters(dtype: torch.dtype) -> None:
    def body(what: str) -> None:
        for rows in (1, 5, 40_001):
            given = random((rows, 4), dtype, 9)
            for op in (hvd.Sum, hvd.Average):
                check(what, hvd.reducescatter(given.cuda(), op=op), hvd.reducescatter(given, op=op))

    attempt(f"reducescatter of {dtype}", body)


def groups(dtype: torch.dtype) -> None:
    def body(what: str) -> None:
        for seed in range(2):
            given = [random((1 + 977 * i % 5000,), dtype, 10 + i + seed) for i in range(130)]
            on_device = [one.cuda() for one in given]
            check(what + " allreduce", hvd.grouped_allreduce(on_device, op=hvd.Sum),
                  hvd.grouped_allreduce(given, op=hvd.Sum))  # fmt: skip
        few = [random((3 + i, 2), dtype, 20 + i) for i in range(5)]
        check(what + " allgather", hvd.grouped_allgather([one.cuda() for one in few]), hvd.grouped_allgather(few))
        check(what + " reducescatter", hvd.grouped_reducescatter([one.cuda() for one in few], op=hvd.Sum),
              hvd.grouped_reducescatter(few, op=hvd.Sum))  # fmt: skip

    attempt(f"groups of {dtype}", body)


def asynchronous(what: str) -> None:
    given = [random((5000,), torch.float32, 40 + i) for i in range(60)]
    handles = [hvd.allreduce_async(one.cuda(), name=f"a{i}", op=hvd.Sum) for i, one in enumerate(given)]
    on_host = [hvd.allreduce_async(one, name=f"b{i}", op=hvd.Sum) for i, one in enumerate(given)]
    check(what, [hvd.synchronize(one) for one in handles], [hvd.synchronize(one) for one in on_host])


def in_stream_order(what: str) -> None:
    """The producer is slow, on a stream of its own; the operation must wait for it, and nobody else."""
    stream = torch.cuda.Stream()
    for size in (1000, 1 << 20):
        with torch.cuda.stream(stream):
            tensor = torch.zeros(size, device="cuda")
            torch.cuda._sleep(200_000_000)
            tensor += hvd.rank() + 1
            result = hvd.allreduce(tensor, op=hvd.Sum)
        check(what, result, torch.full((size,), float(sum(range(1, hvd.size() + 1)))))


def adasum(what: str) -> None:
    given = random((1000,), torch.float32, 50)
    check(what, hvd.allreduce(given.cuda(), op=hvd.Adasum), hvd.allreduce(given, op=hvd.Adasum))


def layouts(what: str) -> None:
    given = random((8, 6, 4, 4), torch.float32, 51)
    last = given.to(memory_format=torch.channels_last)
    check(what, hvd.allreduce(last.cuda(), op=hvd.Sum), hvd.allreduce(last, op=hvd.Sum))
    check(what + " transposed", hvd.allreduce(given.cuda().transpose(0, 1), op=hvd.Sum),
          hvd.allreduce(given.transpose(0, 1), op=hvd.Sum))  # fmt: skip
    half = given.cuda()[::2]
    hvd.allreduce_(half, op=hvd.Sum)
    check(what + " with gaps", half, hvd.allreduce(given[::2], op=hvd.Sum))


def normalisation(what: str) -> None:
    torch.manual_seed(7)
    norm = hvd.SyncBatchNorm(6)
    given = random((4, 6, 5), torch.float32, 60)
    on_host = given.clone().requires_grad_()
    norm(on_host).pow(2).sum().backward()
    norm = hvd.SyncBatchNorm(6).cuda()
    on_device = given.cuda().requires_grad_()
    norm(on_device).pow(2).sum().backward()
    close = torch.allclose(on_device.grad.cpu(), on_host.grad, rtol=1e-3, atol=1e-4)
    if not close:
        raise AssertionError((on_device.grad.cpu() - on_host.grad).abs().max())


def mixed(what: str) -> None:
    if hvd.size() == 1:
        return
    given = torch.ones(10)
    try:
        hvd.allreduce(given.cuda() if hvd.rank() == 0 else given, name="mixed")
    except RuntimeError as error:
        if "host memory" in str(error) and "device memory" in str(error):
            return
        raise
    raise AssertionError("tensors of the host and of devices were reduced together")


def capture(what: str) -> None:
    tensor = torch.ones(10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            hvd.allreduce_async(tensor, name="captured")
    except Exception as error:
        if "graph" not in str(error):
            raise
        return
    raise AssertionError("an operation was captured")


def shared(what: str) -> None:
    """Tensors in memory that ranks map: on all ranks, on some, as parts, used again, large and small."""
    for turn in range(2):
        for size in (1000, 70_001, 3 << 20, (9 << 20) + 3):
            given = random((size,), torch.float32, 70 + turn)
            expected = hvd.allreduce(given, op=hvd.Average)
            for mine in (True, hvd.rank() % 2 == 0):
                tensor = hvd.shared_empty(size, device="cuda") if mine else torch.empty(size, device="cuda")
                tensor.copy_(given)
                check(f"{what} allreduce", hvd.allreduce_(tensor, op=hvd.Average), expected)
                check(f"{what} part", hvd.allreduce_(tensor[3:], op=hvd.Max), hvd.allreduce(expected[3:], op=hvd.Max))
                tensor.copy_(given)
                check(f"{what} allgather", hvd.allgather(tensor), hvd.allgather(given))
                check(f"{what} broadcast", hvd.broadcast_(tensor, 0), hvd.broadcast(given, 0))
                tensor.copy_(given)
                cut = size // 4 * 4
                check(f"{what} reducescatter", hvd.reducescatter(tensor[:cut].view(-1, 4), op=hvd.Sum),
                      hvd.reducescatter(given[:cut].view(-1, 4), op=hvd.Sum))  # fmt: skip
    before = torch.cuda.mem_get_info()[0]
    for _ in range(30):
        tensor = hvd.shared_empty(1 << 20, device="cuda")
        tensor.fill_(1.0)
        hvd.allreduce_(tensor, op=hvd.Sum)
    if before - torch.cuda.mem_get_info()[0] > 16 << 20:
        raise AssertionError("memory that was given back is not used again")


def memory(what: str) -> None:
    tensor = torch.ones(1 << 18, device="cuda")
    for i in range(20):
        hvd.allreduce_(tensor, op=hvd.Average, name=f"warm{i % 5}")
        hvd.allgather(tensor[:1000], name=f"gather{i % 5}")
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    hvd.barrier()
    for i in range(500):
        hvd.allreduce_(tensor, op=hvd.Average, name=f"warm{i % 5}")
        hvd.allgather(tensor[:1000], name=f"gather{i % 5}")
    hvd.barrier()
    lost = before - torch.cuda.mem_get_info()[0]
    if lost > 1 << 20:
        raise AssertionError(f"{lost} bytes of the device are gone after 1,000 operations")


def main() -> int:
    hvd.init()
    torch.cuda.set_device(0)
    if hvd.rank() == 0:
        from horo import _horo

        say(_horo.devices())
    quick = "--quick" in sys.argv
    for dtype in [torch.float32, torch.bfloat16] if quick else [*INTEGERS, *FLOATS, torch.bool, torch.complex64]:
        allreduces(dtype)
        moves(dtype)
        if dtype is not torch.bool and not dtype.is_complex:
            reducescatters(dtype)
            groups(dtype)
    parts = [asynchronous, in_stream_order, adasum, layouts, normalisation, shared, mixed, memory]
    if hvd.size() == 1:
        parts.append(capture)
    for part in parts:
        attempt(part.__name__, part)
    return finish()


def finish() -> int:
    total = hvd.allreduce(torch.tensor([counts["failures"]]), op=hvd.Sum)
    if hvd.rank() == 0:
        say(f"{counts['checks']} checks, {int(total)} failures on {hvd.size()} ranks")
    hvd.shutdown()
    return 1 if int(total) else 0


if __name__ == "__main__":
    sys.exit(main())
