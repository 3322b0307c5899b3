"""Smaller tensors on the way: see horo.compression."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horo.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """Floating-point tensors travel as float16."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tf.cast(tensor, ctx) if ctx is not None and ctx.is_floating else tensor


class Compression:
    """What `compression` can be."""

    none = NoneCompressor
    fp16 = FP16Compressor
