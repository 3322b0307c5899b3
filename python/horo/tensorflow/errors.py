"""Failures of operations: TensorFlow's exceptions hold their words, from which horo's are made."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from horo.exceptions import exception_of

# "... horo: peer-lost[2,3]: words [Op:HoroAllreduce]"
_WORDS = re.compile(r"horo: ([a-z-]+)(?:\[([\d,]+)\])?: (.*)", re.DOTALL)


def translated(error: BaseException) -> Exception | None:
    """What horo raises for a failure of one of its operations in a graph; None for other failures."""
    if not isinstance(error, tf.errors.OpError):
        return None
    found = _WORDS.search(error.message)
    if found is None:
        return None
    code, lost, words = found.groups()
    words = re.sub(r"\s*\[(Op:|\[)\S.*$", "", words, flags=re.DOTALL)
    if code == "stopped" and "has not been initialized" in words:
        code = "invalid-argument"
    return exception_of(code, words, [int(rank) for rank in lost.split(",")] if lost else [])


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
