"""Tensors that every rank can make of every rank, and what operations on them give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

INTEGERS = [tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64]
FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
COMPLEX = [tf.complex64, tf.complex128]
MOVED = [tf.dtypes.experimental.float8_e4m3fn, tf.dtypes.experimental.float8_e5m2]
ALL = [*INTEGERS, *FLOATS, tf.bool, *COMPLEX, *MOVED]

# Outside of a graph, and inside.
MODES = ["eager", "graph"]


def in_mode(mode: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(function) if mode == "graph" else function


def of_rank(rank: int, shape: tuple[int, ...], dtype: tf.DType, seed: int = 0) -> np.ndarray:
    """Small whole numbers, so that every type has them and every sum of few is exact."""
    numbers = np.random.default_rng(1000 * seed + rank).integers(0, 4, shape)
    if dtype.is_complex:
        return (numbers - 1j * (numbers - 1)).astype(dtype.as_numpy_dtype)
    return numbers.astype(dtype.as_numpy_dtype)


def of_ranks(count: int, shape: tuple[int, ...], dtype: tf.DType, seed: int = 0) -> list[np.ndarray]:
    return [of_rank(rank, shape, dtype, seed) for rank in range(count)]


def same(got: tf.Tensor, wanted: np.ndarray) -> bool:
    """Bit by bit; some types have no comparison."""
    values = got.numpy()
    alike = values.dtype == wanted.dtype and values.shape == wanted.shape
    return alike and values.tobytes() == np.ascontiguousarray(wanted).tobytes()


def wide(dtype: tf.DType) -> Any:
    if dtype.is_complex:
        return np.complex128
    return np.float64 if dtype.is_floating else np.int64


def summed(arrays: list[np.ndarray], dtype: tf.DType) -> np.ndarray:
    return sum(one.astype(wide(dtype)) for one in arrays).astype(dtype.as_numpy_dtype)


def averaged(arrays: list[np.ndarray], dtype: tf.DType) -> np.ndarray:
    total = sum(one.astype(wide(dtype)) for one in arrays)
    mean = total // len(arrays) if dtype.is_integer else total / len(arrays)
    return mean.astype(dtype.as_numpy_dtype)
