"""horo.run(): a function on every rank of a job that `horo run` starts, and what it returned there."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


def run(
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls `func(*args, **kwargs)` on `num_proc` ranks; the function calls init() itself. Returns what the ranks
    returned, in their order.

    An exception of a rank is raised here, with the rank's traceback as its cause (a RankTraceback, which knows the
    rank). RankFailedError is raised for a rank that ended without one. With `min_num_proc` the job goes on without
    ranks that are lost, as long as so many are left, and those return something (docs/elastic.md). `hosts` ("a:2,b:4")
    and `hostfile` are those of `horo run`, as are the other arguments. The function goes by value with cloudpickle
    where that is installed; without it, it has to be importable on the ranks by its name.
    """
    if np is not None:
        warnings.warn("np is called num_proc now", DeprecationWarning, stacklevel=2)
        num_proc = np
    if network_interface is not None:
        warnings.warn("network_interface is called network_interfaces now", DeprecationWarning, stacklevel=2)
        network_interfaces = network_interface if network_interfaces is None else network_interfaces
    min_num_proc = min_np if min_num_proc is None else min_num_proc
    max_num_proc = max_np if max_num_proc is None else max_num_proc
    _refuse_growing(
        slots=slots,
        cooldown_range=cooldown_range,
        host_discovery_script=host_discovery_script,
    )
    if network_interfaces is not None and not isinstance(network_interfaces, str):
        network_interfaces = ",".join(network_interfaces)
    if isinstance(num_proc, bool) or not isinstance(num_proc, int) or num_proc < 1:
        raise ValueError(f"num_proc is a number of ranks, 1 or more, not {num_proc!r}")
    # The launcher explains those that change nothing.
    flags = {
        "--num-proc": num_proc,
        "--hosts": hosts,
        "--hostfile": hostfile,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--output-filename": output_filename,
        "--network-interfaces": network_interfaces,
        "--mpi-args": mpi_args,
        "--min-num-proc": min_num_proc,
        "--max-num-proc": max_num_proc,
        "--reset-limit": reset_limit,
    }
    switches = {"--disable-cache": disable_cache, "--verbose": verbose, "--gloo": use_gloo, "--mpi": use_mpi}
    words = [f"{name}={value}" for name, value in flags.items() if value is not None]
    words += [name for name, value in switches.items() if value]
    # Ranks import this package too, and start sooner without all that this needs.
    from horo.job import run_job

    elastic = min_num_proc is not None or max_num_proc is not None
    return run_job((func, tuple(args), dict(kwargs or {})), num_proc, words, executable or sys.executable, elastic)


def run_commandline() -> NoReturn:
    """Becomes `horo run` with the arguments of this process."""
    import os

    from horo.paths import program_path

    program = str(program_path())
    os.execv(program, [program, "run", *sys.argv[1:]])


def _refuse_growing(**arguments: Any) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise NotImplementedError(
            f"{', '.join(given)}: in this version no ranks enter a job that runs; use num_proc and hosts or hostfile"
        )
