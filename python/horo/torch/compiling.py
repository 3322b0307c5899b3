"""Operations are no part of compiled graphs: torch.compile breaks its graph at a call and goes on after it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable)


def uncompiled(function: _Function, name: str | None = None) -> _Function:
    """torch.compiler.disable(function), but the compiler, which takes seconds to import, is imported by who uses it.

    `name` is what the function is called in messages and help.
    """
    disabled: list[Callable] = []

    @functools.wraps(function)
    def call(*args, **kwargs):
        if disabled:
            return disabled[0](*args, **kwargs)
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    call._torchdynamo_disable = True
    if name is not None:
        call.__name__ = call.__qualname__ = name
    return call
