"""Tensors that every rank can make of every rank, and what operations on them give."""

from __future__ import annotations

import torch

INTEGERS = [
    *(torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64),
]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
MOVED = [torch.float8_e4m3fn, torch.float8_e5m2]
ALL = [*INTEGERS, *FLOATS, torch.bool, *COMPLEX, *MOVED]


def of_rank(rank: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Small whole numbers, so that every type has them and every sum of few is exact."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    numbers = torch.randint(0, 4, shape, generator=generator)
    if dtype.is_complex:
        return torch.complex(numbers.double(), -numbers.double() + 1).to(dtype)
    return numbers.to(dtype)


def of_ranks(count: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    return [of_rank(rank, shape, dtype, seed) for rank in range(count)]


def equal(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Bit by bit; some types have no comparison."""
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    bits = [one.contiguous().reshape(-1).view(torch.uint8) for one in (got, wanted)]
    return torch.equal(*bits)


def wide(dtype: torch.dtype) -> torch.dtype:
    """A type that torch itself can add in without loss."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else torch.int64


def summed(tensors: list[torch.Tensor]) -> torch.Tensor:
    dtype = tensors[0].dtype
    return torch.stack([one.to(wide(dtype)) for one in tensors]).sum(0).to(dtype)


def averaged(tensors: list[torch.Tensor]) -> torch.Tensor:
    dtype = tensors[0].dtype
    total = torch.stack([one.to(wide(dtype)) for one in tensors]).sum(0)
    mean = total / len(tensors) if dtype.is_floating_point or dtype.is_complex else total // len(tensors)
    return mean.to(dtype)
