"""Jobs of real processes whose ranks run a function of a test."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PRELUDE = """
import contextlib, os, signal, sys, threading, time, urllib.request, weakref
import numpy as np
import horo
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell ignores it for what it runs in the background.
"""
LIMIT_SECONDS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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


def run_suite(folder: Path, variable: str, count: int, *arguments: str, seconds: float = 480) -> tuple[int, str]:
    """The tests of a folder on all ranks of a job, which `variable` tells that they are such. The exit code and what
    the ranks said. A job that takes too long is ended, and says how far it was."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    # A rank that waits for one that went another way must not wait for ever.
    settings = {variable: "1", "HORO_STALL_ABORT": "60", "HORO_STALL_WARNING": "10", "OMP_NUM_THREADS": "1"}
    # -x: a rank that fails ends, or the others would wait for it in the next operation.
    suite = [sys.executable, "-u", "-m", "pytest", "-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
    job = subprocess.Popen(
        [launcher(), "run", "-np", str(count), *suite, *arguments],
        env={**inherited, **settings},
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
