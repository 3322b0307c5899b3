"""Smaller tensors on the way: see horo.compression."""

from __future__ import annotations

from typing import Any

import keras

from horo.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """Floating-point tensors travel as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        return (keras.ops.cast(tensor, "float16"), dtype) if keras.backend.is_float_dtype(dtype) else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else keras.ops.cast(tensor, ctx)


class Compression:
    """What `compression` can be."""

    none = NoneCompressor
    fp16 = FP16Compressor
