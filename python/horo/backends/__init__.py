"""One interface for whatever joins the processes of a training script: horo, torch, DeepSpeed, or nothing.

    parser = backends.wrap_arg_parser(argparse.ArgumentParser())
    args = parser.parse_args()
    distributed = backends.set_backend_from_args(args)   # --distributed_backend horo
    distributed.initialize()
    model, optimizer, loader, scheduler = distributed.distribute(args, model, optimizer, training_data=loader)

docs/backends.md has the whole of it.
"""

from __future__ import annotations

from typing import Any

from horo.backends import selection
from horo.backends.base import DistributedBackend
from horo.backends.deepspeed import DeepSpeedBackend
from horo.backends.dummy import DummyBackend
from horo.backends.horo import HoroBackend, HorovodBackend
from horo.backends.selection import (
    BACKENDS,
    register,
    require_set_backend,
    set_backend,
    set_backend_from_args,
    using_backend,
    wrap_arg_parser,
)
from horo.backends.torch import TorchBackend

__all__ = [
    "BACKENDS",
    "DeepSpeedBackend",
    "DistributedBackend",
    "DummyBackend",
    "HoroBackend",
    "HorovodBackend",
    "TorchBackend",
    "backend",
    "is_distributed",
    "register",
    "require_set_backend",
    "set_backend",
    "set_backend_from_args",
    "using_backend",
    "wrap_arg_parser",
]


def __getattr__(name: str) -> Any:
    """`backend` and `is_distributed` change when a back end is set."""
    if name in ("backend", "is_distributed"):
        return getattr(selection, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
