"""Operations are no part of compiled graphs: torch.compile breaks its graph at a call and goes on after it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TypeVar

import torch

try:
    from torch._C._dynamo.eval_frame import get_eval_frame_callback as watcher
    from torch._C._dynamo.eval_frame import skip_code
except ImportError:  # Not there in every release of torch.
    skip_code = None

    def watcher() -> bool | None:
        """None while the compiler cannot be looking at this thread's calls."""
        return True if "torch._dynamo" in sys.modules else None


_Function = TypeVar("_Function", bound=Callable)


def uncompiled(function: _Function, name: str | None = None) -> _Function:
    """torch.compiler.disable(function), but only what the compiler looks at pays for that: a microsecond for each call,
    and seconds of import for the first.

    `name` is what the function is called in messages and help.
    """
    disabled: list[Callable] = []

    @functools.wraps(function)
    def call(*args, **kwargs):
        if watcher() is None:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    call._torchdynamo_disable = True
    if skip_code is not None:
        skip_code(call.__code__)
    if name is not None:
        call.__name__ = call.__qualname__ = name
    return call
