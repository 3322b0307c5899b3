"""Smaller tensors on the way: a compressor is a class with the static functions compress and decompress.

What all front ends share; how a tensor becomes float16 is each one's own (its `Compression.fp16`).
"""

from __future__ import annotations

from typing import Any


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
