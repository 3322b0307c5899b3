"""Smaller gradients on the way: a compressor is a class with the static functions compress and decompress."""

from __future__ import annotations

from typing import Any

import keras


class Compressor:
    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """What is sent, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


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
