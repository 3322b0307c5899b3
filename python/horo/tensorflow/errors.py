"""Failures of operations: TensorFlow's exceptions hold their words, from which horo's are made."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from horo.exceptions import exception_in

# What TensorFlow puts behind them: the operation, and where in the program it was made.
_BEHIND = re.compile(r"\s*\[(Op:|\[).*$|\n.*$", re.DOTALL)


def translated(error: BaseException) -> Exception | None:
    """What horo raises for a failure of one of its operations in a graph; None for other failures."""
    if not isinstance(error, tf.errors.OpError):
        return None
    words = error.message
    return exception_in(_BEHIND.sub("", words[words.find("horo: ") :])) if "horo: " in words else None


@contextlib.contextmanager
def horo_errors() -> Iterator[None]:
    """Raises HorovodInternalError and ValueError where an operation fails, as outside of TensorFlow."""
    try:
        yield
    except tf.errors.OpError as error:
        translation = translated(error)
        if translation is None:
            raise
        raise translation from error
