"""Jobs of real processes whose ranks run a function of a test."""

from __future__ import annotations

import contextlib
import inspect
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

PRELUDE = """
import contextlib, os, signal, sys, threading, time, urllib.request, weakref
import numpy as np
import horo
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell ignores it for what it runs in the background.
"""
LIMIT_SECONDS = 60
long = pytest.mark.skipif(not os.environ.get("LONG_TESTS"), reason="takes long: make test-all")


def free_port(count: int = 1) -> int:
    """The first of `count` ports in a row at which nobody listens. They lie below those that the kernel gives to every
    connection that asks for none: one of these may be in use again before the job opens it."""
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for first in random.sample(range(10000, max(lowest_given, 20000) - count), 100):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise RuntimeError(f"no {count} free ports in a row in 100 places")


def script_of(body: Callable[[], None]) -> str:
    """The function's source, so that a rank needs nothing of the test's module but the usual imports."""
    return f"{PRELUDE}\n{textwrap.dedent(inspect.getsource(body))}\n{body.__name__}()\n"


def launcher() -> str:
    program = shutil.which("horo", path=sysconfig.get_path("scripts")) or shutil.which("horo")
    assert program is not None, "the program horo is not installed"
    return program


@dataclass
class Job:
    ranks: list[subprocess.Popen[str]]
    outputs: list[str] = field(default_factory=list)

    def wait(self, seconds: float = LIMIT_SECONDS) -> list[int]:
        """The exit codes. Ranks that are still there at the limit are killed, and the test fails."""
        try:
            for rank in self.ranks:
                self.outputs.append(rank.communicate(timeout=seconds)[0])
        finally:
            for rank in self.ranks:
                if rank.poll() is None:
                    rank.send_signal(signal.SIGKILL)
                    rank.wait()
        return [rank.returncode for rank in self.ranks]

    def line(self, rank: int) -> str:
        """What a rank says next."""
        stdout = self.ranks[rank].stdout
        assert stdout is not None
        return stdout.readline().strip()


def start(count: int, body: Callable[[], None], **settings: str) -> Job:
    """Ranks without a launcher: rank 0 serves the store itself."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    shared = {
        "HORO_SIZE": str(count),
        "HORO_STORE": f"127.0.0.1:{free_port()}",
        "HORO_INTERFACE": "127.0.0.1",
        "HORO_JOB_ID": "python-test",
        "HORO_STAGING": "64MiB",
    }
    return Job(
        [
            subprocess.Popen(
                [sys.executable, "-u", "-c", script_of(body)],
                env={**inherited, **shared, **settings, "HORO_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(count)
        ]
    )


def run(count: int, body: Callable[[], None], seconds: float = LIMIT_SECONDS, **settings: str) -> list[str]:
    """All ranks must succeed. Returns what they said."""
    job = start(count, body, **settings)
    codes = job.wait(seconds)
    report = "\n".join(f"--- rank {rank}, exit code {codes[rank]}\n{job.outputs[rank]}" for rank in range(count))
    assert codes == [0] * count, report
    return job.outputs


def launch(count: int, body: Callable[[], None], seconds: float = LIMIT_SECONDS, flags: Sequence[str] = ()) -> str:
    """The same by `horo run`."""
    done = subprocess.run(
        [launcher(), "run", "-np", str(count), *flags, sys.executable, "-u", "-c", script_of(body)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_command(
    count: int, *command: str, settings: dict[str, str], folder: Path, seconds: float = 480
) -> tuple[int, str]:
    """The exit code of a job of Python programs, and what its ranks said. One that takes too long is ended, and says
    how far it was."""
    job = subprocess.Popen(
        [launcher(), "run", "-np", str(count), sys.executable, "-u", *command],
        env=settings,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = job.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        job.send_signal(signal.SIGTERM)  # The launcher ends its ranks.
        output = f"{job.communicate(timeout=60)[0]}\nkilled after {seconds} s"
    return job.returncode, output


def suite_settings(variable: str) -> dict[str, str]:
    """What ranks find in the environment that run the tests of a folder, which `variable` tells that they are such."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    # A rank that waits for one that went another way must not wait for ever.
    patience = {"HORO_STALL_ABORT": "60", "HORO_STALL_WARNING": "10"}
    return {**inherited, variable: "1", **patience, "OMP_NUM_THREADS": "1"}


def run_suite(
    folder: Path,
    variable: str,
    count: int,
    *arguments: str,
    settings: dict[str, str] | None = None,
    seconds: float = 480,
) -> tuple[int, str]:
    """The tests of a folder on all ranks of a job. `settings`: instead of suite_settings()."""
    # -x: a rank that fails ends, or the others would wait for it in the next operation.
    suite = ["-m", "pytest", "-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
    settings = suite_settings(variable) if settings is None else settings
    return run_command(count, *suite, *arguments, settings=settings, folder=folder, seconds=seconds)


def run_in_turn(folder: Path, settings: dict[str, str], *files: str, seconds: float = 480) -> None:
    """The tests of a folder on 3, 2 and 1 ranks, those of `files` alone on 3 and 1; see in_turn.py. All must pass."""
    driver = Path(__file__).with_name("in_turn.py")
    paths = [str(folder / name) for name in files]
    code, output = run_command(3, str(driver), str(folder), *paths, settings=settings, folder=folder, seconds=seconds)
    assert code == 0, output
    assert [output.count(f"{ranks} ranks are done") for ranks in (1, 2, 3)] == [1, 2, 3], output
    assert len([line for line in output.splitlines() if " passed" in line]) == 6, output


def alone(folder: Path, *kept: str) -> dict[str, str]:
    """Variables with which Python finds no other frameworks than these: Keras imports all that it finds, which takes
    seconds, and so do wrappers that nobody needs here. `folder` is for a file of that."""
    hidden = [name for name in ("tensorflow", "keras", "jax", "torch", "sklearn", "pandas") if name not in kept]
    (folder / "sitecustomize.py").write_text(
        "from functools import partial\n"
        "from importlib.machinery import PathFinder\n"
        "found = PathFinder.find_spec\n"
        "def find_spec(name, path=None, target=None):\n"
        f"    return None if name in {hidden!r} else found(name, path, target)\n"
        "PathFinder.find_spec = partial(find_spec)\n"
    )
    return {"PYTHONPATH": str(folder)}


def is_installed(framework: str) -> bool:
    """Without importing it: folders of tests are namespace packages of such names, which have no origin."""
    found = find_spec(framework)
    return found is not None and found.origin is not None
