"""The allreduce that compiled programs call: a handler of XLA's foreign function interface, in libhoro_jax."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.ffi
import numpy as np

from horo.paths import plugin_path

_TARGET = "horo_allreduce"


class Reduction(NamedTuple):
    """What is part of a program when it is traced."""

    name: str
    op: int  # The library's number.
    prescale: float
    postscale: float
    process_set: int


@functools.cache
def _register() -> None:
    library = ctypes.CDLL(str(plugin_path("jax")))
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(library.horo_jax_allreduce), platform="cpu")


def reduce_in_program(tensors: Sequence[jax.Array], how: Reduction) -> tuple[jax.Array, ...]:
    """All tensors are one group. They are reduced where they lie, unless the program needs them afterwards."""
    _register()
    call = jax.ffi.ffi_call(
        _TARGET,
        [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in tensors],
        has_side_effect=True,  # Other ranks wait for it, whether or not this one uses the result.
        vmap_method="broadcast_all",
        input_output_aliases={index: index for index in range(len(tensors))},
    )
    results = call(
        *tensors,
        name=how.name,
        op=np.int64(how.op),
        process_set=np.int64(how.process_set),
        prescale=np.float64(how.prescale),
        postscale=np.float64(how.postscale),
    )
    return tuple(results)
