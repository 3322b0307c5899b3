"""The library's casts on CUDA tensors: right results, and how fast they are beside a copy. Run by horo run, one rank.

Prints one line per failure, a table and a count; exits with 1 if there was any failure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch

import horo.torch as hvd
from horo import _horo
from horo.torch.tensors import place_of
from horo.world import world

WIDE, HALVES = [torch.float32, torch.float64], [torch.float16, torch.bfloat16]
SIZES = [0, 1, 3, 4, 17, 1000, 8191, 8193, 70_001, 1 << 20]
NUMBER = {getattr(torch, name): number for name, number in _horo.DTYPES.items() if hasattr(torch, name)}
LEVELS = torch.tensor(127.0)
AIM = 80
counts = {"checks": 0, "failures": 0}


def caster(
    to: Sequence[torch.Tensor],
    source: Sequence[torch.Tensor],
    largest: Sequence[torch.Tensor] | None = None,
    **terms: object,
) -> Callable[[], None]:
    arrays = [
        (a.data_ptr(), b.data_ptr(), a.numel(), largest[i].data_ptr() if largest else 0)
        for i, (a, b) in enumerate(zip(to, source, strict=True))
    ]
    numbers = NUMBER[to[0].dtype], NUMBER[source[0].dtype]
    return lambda: _horo.cast(group, *numbers, arrays, *place_of(to[0]), **terms)


def cast(*arguments: Sequence[torch.Tensor] | None, **terms: object) -> None:
    caster(*arguments, **terms)()


def check(what: str, got: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal bits, but that NaN is NaN."""
    counts["checks"] += 1
    got, expected = got.cpu(), expected.cpu()
    same = (got == expected) | (got != got) & (expected != expected)
    if not bool(same.all()):
        counts["failures"] += 1
        at = int((~same).nonzero()[0])
        print(f"FAILED {what} at {at}: {got[at].item()} is not {expected[at].item()}", flush=True)


def values(size: int, dtype: torch.dtype, seed: int, odd: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(size, generator=generator, dtype=torch.float64) * torch.logspace(-9, 4, max(size, 1))[:size]
    special = [float("inf"), -float("inf"), float("nan"), 65520.0, 65519.0, 1e-8, -0.0, 3e38, 1.0 + 2**-11 + 2**-40]
    if odd and size > 20:
        made[:: size // 20][: len(special)] = torch.tensor(special, dtype=torch.float64)
    return made.to(dtype)


def rounded(given: torch.Tensor, half: torch.dtype) -> torch.Tensor:
    """Once, by the host's kernels: torch rounds f64 to f32 first."""
    given, made = given.cpu(), torch.empty(given.shape, dtype=half)
    cast([made], [given])
    return made


def halves() -> None:
    for wide in WIDE:
        for half in HALVES:
            for size in SIZES:
                for shift in (0, 1, 2, 4):
                    given = values(size + shift, wide, size).cuda()[shift:]
                    short = torch.empty(size + 4, dtype=half, device="cuda")[4 - shift :][:size]
                    cast([short], [given])
                    check(f"{wide} to {half}, {size} from {shift}", short, rounded(given, half))
                    back = torch.empty(size + shift, dtype=wide, device="cuda")[shift:]
                    cast([back], [short])
                    check(f"{half} to {wide}, {size} from {shift}", back, short.to(wide))


def quantized(given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As docs/ddp.md says, on the CPU: on a GPU torch does not divide by numbers, it multiplies by 1/x."""
    given = given.cpu()
    largest = given.abs().max() if given.numel() else torch.zeros(())
    if not bool(largest.isfinite()):
        return torch.zeros_like(given, dtype=torch.int8), torch.full_like(largest, float("nan"))
    scale = LEVELS / largest
    if not bool(largest > 0) or not bool(scale.isfinite()):
        return torch.zeros_like(given, dtype=torch.int8), largest
    return torch.round(given * scale).to(torch.int8), largest


def integers() -> None:
    for size in SIZES:
        for shift in (0, 1, 4):
            for bad in (None, float("inf"), float("nan"), 0.0, 1e-40):
                given = values(size + shift, torch.float32, size, odd=False).cuda()[shift:]
                if bad is not None and size:
                    given = given * bad if bad in (0.0, 1e-40) else given.clone()
                    given[size // 2] = bad
                short = torch.full((size + 4,), 99, dtype=torch.int8, device="cuda")[4 - shift :][:size]
                largest = torch.full((1,), 5.0, device="cuda")
                cast([short], [given], [largest])
                expected, most = quantized(given)
                what = f"to 8 bits, {size} from {shift}, with {bad}"
                check(what, short, expected)
                if bool(most.isfinite()):
                    check(what + ", largest", largest, most.reshape(1))
                back = torch.zeros(size + shift, device="cuda")[shift:]
                cast([back], [short], [largest])
                once = expected.float() * (most / LEVELS)
                check(what + ", back", back, once)
                cast([back], [short], [largest], add=True, factor=0.3)
                check(what + ", added", back, (once + once) * torch.tensor(0.3))


def many() -> None:
    for number in (96, 97, 300, 1700):
        sizes = [0 if i % 50 == 7 else 1 + 977 * i % 9000 for i in range(number)]
        given = [values(size, torch.float32, i, odd=False).cuda() for i, size in enumerate(sizes)]
        flat = torch.empty(sum(sizes), dtype=torch.bfloat16, device="cuda")
        cast(flat.split(sizes), given)
        check(f"{number} tensors to bf16", flat, torch.cat(given).to(torch.bfloat16))
        back = [torch.empty_like(one) for one in given]
        cast(back, flat.split(sizes))
        check(f"{number} tensors from bf16", torch.cat(back), flat.float())
        short, largest = torch.empty(sum(sizes), dtype=torch.int8, device="cuda"), torch.ones(number, device="cuda")
        cast(short.split(sizes), given, largest.split(1))
        expected = [quantized(one) for one in given]
        check(f"{number} tensors to 8 bits", short, torch.cat([one for one, _ in expected]))
        check(f"{number} largest", largest, torch.stack([one for _, one in expected]))
        # One largest value for all, across launches.
        cast(short.split(sizes), given, [largest[0]] * number)
        check(f"{number} tensors to 8 bits together", short, quantized(torch.cat(given))[0])


def seconds(body: Callable[[], object]) -> float:
    for _ in range(3):
        body()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(20):
        body()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 20e3


def bandwidth() -> None:
    one = [torch.randn(64 << 20, device="cuda")]
    some = [torch.randn((64 << 20) // 300 // 64 * 64, device="cuda") for _ in range(300)]
    target = torch.empty_like(one[0])
    copy = seconds(lambda: target.copy_(one[0]))
    rate = 2 * one[0].nbytes / copy
    print(f"copy bandwidth {rate / 1e12:.2f} TB/s; casts of 256 MiB of f32, in % of it (aim: {AIM})")
    for name, given in (("one tensor", one), ("300 tensors", some)):
        sizes = [part.numel() for part in given]
        for dtype, passes in ((torch.float16, 1), (torch.bfloat16, 1), (torch.int8, 2)):
            flat = torch.empty(sum(sizes), dtype=dtype, device="cuda")
            parts = flat.split(sizes)
            largest = torch.ones(len(sizes), device="cuda").split(1) if dtype is torch.int8 else None
            for way, body, read in (
                ("to", caster(parts, given, largest), passes * 4 + dtype.itemsize),
                ("from", caster(given, parts, largest), 4 + dtype.itemsize),
            ):
                took = seconds(body)
                share = 100 * read * sum(sizes) / took / rate
                print(f"  {name}, {way} {str(dtype)[6:]:<9} {1e6 * took:7.1f} us, {share:5.1f} %", flush=True)
            if dtype is not torch.int8:
                took = seconds(lambda g=given, p=parts: torch._foreach_copy_(list(p), g))
                share = 100 * 6 * sum(sizes) / took / rate
                print(f"  {name}, by torch  {str(dtype)[6:]:<9} {1e6 * took:7.1f} us, {share:5.1f} %", flush=True)


hvd.init()
torch.cuda.set_device(0)
group = world.runtime.group([0])
halves()
integers()
many()
torch.cuda.synchronize()
bandwidth()
print(f"{counts['checks']} checks, {counts['failures']} failures", flush=True)
hvd.shutdown()
sys.exit(1 if counts["failures"] else 0)
