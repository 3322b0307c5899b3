"""The launcher as libraries call it that have its arguments in an object."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any


class HorovodArgs:
    """What a command line would say. Libraries set what they need; all else is as if it had not been given."""

    def __init__(self) -> None:
        self.num_proc: int | None = 1
        self.hosts: str | None = None
        self.hostfile: str | None = None
        self.start_timeout: float | None = None
        self.ssh_port: int | None = None
        self.ssh_identity_file: str | None = None
        self.disable_cache: bool | None = None
        self.output_filename: str | None = None
        self.verbose: int | None = None
        self.use_gloo: bool | None = None
        self.use_mpi: bool | None = None
        self.mpi_args: str | None = None
        self.nics: Any = None
        self.executable: str | None = None
        self.command: Sequence[str] | None = None
        self.run_func: Callable[[], Any] | None = None


# The command line's name for a setting, where it takes a value.
_FLAGS = {
    "num_proc": "--num-proc",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "start_timeout": "--start-timeout",
    "ssh_port": "--ssh-port",
    "ssh_identity_file": "--ssh-identity-file",
    "output_filename": "--output-filename",
    "mpi_args": "--mpi-args",
}
_SWITCHES = {"disable_cache": "--disable-cache", "verbose": "--verbose", "use_gloo": "--gloo", "use_mpi": "--mpi"}


def run_args(args: HorovodArgs) -> list[Any] | None:
    """Runs `args.command` by `horo run`, RuntimeError when it fails; or `args.run_func` on all ranks, and returns what
    they returned."""
    given = {name: getattr(args, name, None) for name in (*_FLAGS, *_SWITCHES)}
    interfaces = getattr(args, "nics", None)
    if args.run_func is not None:
        from horo.launch import run

        return run(args.run_func, **given, network_interfaces=interfaces, executable=args.executable)
    if not args.command:
        raise ValueError("there is neither a command nor a function to run")
    words = [f"{flag}={given[name]}" for name, flag in _FLAGS.items() if given[name] is not None]
    words += [flag for name, flag in _SWITCHES.items() if given[name]]
    if interfaces:
        names = interfaces if isinstance(interfaces, str) else ",".join(sorted(interfaces))
        words.append(f"--network-interfaces={names}")
    from horo.paths import program_path

    code = subprocess.run([str(program_path()), "run", *words, *args.command], check=False).returncode
    if code != 0:
        raise RuntimeError(f"`horo run` of {' '.join(args.command)} ended with exit code {code}")
    return None
