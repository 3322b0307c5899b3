"""Questions about the build, and small functions, with Horovod's signatures."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from horo import basics


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether there is a front end for this framework ("torch", "tensorflow", "keras"), and the framework itself."""
    found = ext_base_name in ("torch", "tensorflow", "keras") and importlib.util.find_spec(ext_base_name) is not None
    if verbose:
        print(f"Checking whether extension {ext_base_name} was built with horo: {'yes' if found else 'no'}")
    return found


def check_extension(ext_name: str, ext_env_var: str = "", pkg_path: str = "", *args: Any) -> None:
    """ImportError when there is no front end `ext_name` ("horovod.torch")."""
    base = ext_name.rpartition(".")[2]
    if not extension_available(base):
        raise ImportError(f"{ext_name} cannot be used: horo has no front end for {base}, or {base} is not installed")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether operations can run on devices: not in this version."""
    return False


def _asked(answer: Any) -> Any:
    def ask(verbose: bool = False) -> Any:
        return answer()

    ask.__name__ = ask.__qualname__ = answer.__name__
    ask.__doc__ = answer.__doc__
    return ask


mpi_built = _asked(basics.mpi_built)
gloo_built = _asked(basics.gloo_built)
nccl_built = _asked(basics.nccl_built)
ddl_built = _asked(basics.ddl_built)
ccl_built = _asked(basics.ccl_built)
cuda_built = _asked(basics.cuda_built)
rocm_built = _asked(basics.rocm_built)


@contextlib.contextmanager
def env(**variables: str) -> Iterator[None]:
    """Sets variables of the environment for a while; None unsets."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        _set_variables(variables)
        yield
    finally:
        _set_variables(before)


def _set_variables(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def split_list(values: Sequence[Any], n: int) -> list[list[Any]]:
    """`n` lists of as equal a length as possible, the longer ones first."""
    size, more = divmod(len(values), n)
    ends = [size * index + min(index, more) for index in range(n + 1)]
    return [list(values[begin:end]) for begin, end in itertools.pairwise(ends)]


def num_rank_is_power_2(num_rank: int) -> bool:
    return num_rank > 0 and num_rank & (num_rank - 1) == 0
