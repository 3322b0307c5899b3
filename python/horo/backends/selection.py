"""Which back end a script uses."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TypeVar

from horo.backends.base import DistributedBackend
from horo.backends.deepspeed import DeepSpeedBackend
from horo.backends.dummy import DummyBackend
from horo.backends.horo import HoroBackend, HorovodBackend
from horo.backends.torch import TorchBackend

BACKENDS: list[DistributedBackend] = [
    DummyBackend(),
    HoroBackend(),
    HorovodBackend(),
    TorchBackend(),
    DeepSpeedBackend(),
]

is_distributed: bool | None = None
"""Whether there is more than the dummy; None before a back end is set."""
backend: DistributedBackend | None = None
"""The one that was set."""

_Class = TypeVar("_Class", bound=type[DistributedBackend])


def register(cls: _Class) -> _Class:
    """Adds a back end, by its class; also a decorator. ValueError when another has its name."""
    added = cls()
    for known in BACKENDS:
        if _named(known, added.BACKEND_NAME):
            raise ValueError(f"{type(known).__name__} is called {known.BACKEND_NAME} already")
    BACKENDS.append(added)
    return cls


def _named(one: DistributedBackend, name: str | None) -> bool:
    return one.BACKEND_NAME is not None and name is not None and one.BACKEND_NAME.lower() == name.lower()


def wrap_arg_parser(parser: ArgumentParser) -> ArgumentParser:
    """Adds `--distributed_backend`, and the arguments of all back ends."""
    names = ", ".join(str(one.BACKEND_NAME) for one in BACKENDS)
    parser.add_argument(
        "--distributed_backend",
        "--distr_backend",
        type=str,
        default=None,
        help=f"what joins the processes: {names}, in any case (one process alone if not given)",
    )
    for one in BACKENDS:
        parser = one.wrap_arg_parser(parser)
    return parser


def set_backend_from_args(args: Namespace) -> DistributedBackend:
    """The back end that the command line names; `--deepspeed` names DeepSpeed."""
    name = getattr(args, "distributed_backend", None) or DummyBackend.BACKEND_NAME
    if getattr(args, "deepspeed", False):
        name = DeepSpeedBackend.BACKEND_NAME
    return set_backend(name)


def set_backend(name: str) -> DistributedBackend:
    """The back end of that name. ModuleNotFoundError when it is not installed, ValueError when nothing is called so."""
    global backend, is_distributed  # noqa: PLW0603  Scripts read them here.
    for one in BACKENDS:
        if not _named(one, name):
            continue
        if not one.has_backend():
            raise one.missing()
        backend = one
        is_distributed = not isinstance(one, DummyBackend)
        return one
    names = ", ".join(str(one.BACKEND_NAME) for one in BACKENDS)
    raise ValueError(f"there is no distributed back end called {name!r}; there are {names}")


def require_set_backend() -> None:
    """AssertionError before a back end is set."""
    assert backend is not None, "no distributed back end is set; call set_backend_from_args() at the start"


def using_backend(test_backend: str | type[DistributedBackend]) -> bool:
    """Whether the back end that was set has this name, or is of this class."""
    require_set_backend()
    if isinstance(test_backend, str):
        return _named(backend, test_backend)
    return isinstance(backend, test_backend)
