"""The operations of a graph, which TensorFlow loads from a library of this package."""

from __future__ import annotations

import ctypes
import functools
from types import ModuleType

import tensorflow as tf

from horo.exceptions import HorovodVersionMismatchError
from horo.paths import plugin_path


@functools.cache
def ops() -> ModuleType:
    """One function for each operation."""
    path = str(plugin_path("tensorflow"))
    module = tf.load_op_library(path)
    problem = ctypes.CDLL(path).horo_tensorflow_problem
    problem.restype = ctypes.c_char_p
    if words := problem().decode():
        raise HorovodVersionMismatchError("TensorFlow", "2.16 to 2.21", f"{tf.__version__} ({words})")
    return module
