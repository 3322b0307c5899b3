"""Functions and objects as bytes. Only bytes that came over an authenticated way are ever turned back."""

from __future__ import annotations

import pickle
import struct
from types import ModuleType
from typing import Any

# In front of the outcome of a call: how long it is. One that is cut short can be told from a whole one.
LENGTH = struct.Struct("<Q")


def cloudpickle_module() -> ModuleType | None:
    try:
        import cloudpickle
    except ImportError:
        return None
    return cloudpickle


def dumps(thing: Any) -> bytes:
    """By name where it has one, else by value, which needs cloudpickle."""
    try:
        return pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        cloudpickle = cloudpickle_module()
        if cloudpickle is None:
            raise
        return cloudpickle.dumps(thing)


def _lives_in_main(thing: Any) -> bool:
    return getattr(thing, "__module__", None) == "__main__"


def dumps_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """A call for another process. By value where possible: what is in __main__ here is not in __main__ there."""
    cloudpickle = cloudpickle_module()
    if cloudpickle is not None:
        return cloudpickle.dumps((func, args, kwargs))
    advice = "functions of the main program, lambdas and closures need cloudpickle: pip install cloudpickle"
    if _lives_in_main(func):
        raise ValueError(f"{func!r} cannot be sent to the ranks: {advice}")
    try:
        return pickle.dumps((func, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(f"{func!r} or its arguments cannot be sent to the ranks ({error}): {advice}") from error
