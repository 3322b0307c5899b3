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
    rank). RankFailedError is raised for a rank that ended without one. With `min_num_proc`, `max_num_proc` or
    `host_discovery_script` the job is elastic: it goes on without ranks that are lost, others enter while it runs, and
    what those returned that are there at the end is returned, in the order in which they were started
    (docs/elastic.md). `slots` is for hosts for which the script prints no number; `cooldown_range` is a pair of
    seconds after which a slot that failed is used again. `hosts` ("a:2,b:4")
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
    if cooldown_range is not None and len(cooldown_range) != 2:
        raise ValueError(f"cooldown_range is a pair of seconds, not {cooldown_range!r}")
    if network_interfaces is not None and not isinstance(network_interfaces, str):
        network_interfaces = ",".join(network_interfaces)
    if isinstance(num_proc, bool) or not isinstance(num_proc, int) or num_proc < 1:
        raise ValueError(f"num_proc is a number of ranks, 1 or more, not {num_proc!r}")
    # The launcher explains those that change nothing: use_mpi, for one, as mpirun would hand over no function.
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
        "--host-discovery-script": host_discovery_script,
        "--slots-per-host": slots,
    }
    switches = {"--disable-cache": disable_cache, "--verbose": verbose, "--gloo": use_gloo, "--mpi": use_mpi}
    words = [f"{name}={value}" for name, value in flags.items() if value is not None]
    words += [name for name, value in switches.items() if value]
    if cooldown_range is not None:
        words += ["--blacklist-cooldown-range", *map(str, cooldown_range)]
    # Ranks import this package too, and start sooner without all that this needs.
    from horo.job import run_job

    elastic = any(value is not None for value in (min_num_proc, max_num_proc, host_discovery_script))
    return run_job((func, tuple(args), dict(kwargs or {})), num_proc, words, executable or sys.executable, elastic)


def run_commandline() -> NoReturn:
    """Becomes `horo run` with the arguments of this process."""
    import os

    from horo.paths import program_path

    program = str(program_path())
    os.execv(program, [program, "run", *sys.argv[1:]])
