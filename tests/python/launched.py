"""Ranks that other launchers start: mpirun and mpiexec, torchrun."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import LIMIT_SECONDS, PRELUDE, script_of

FAMILIES = ("openmpi", "mpich")
_OPEN_MPI_AS_ROOT = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")


def mpi_command(family: str, count: int) -> list[str]:
    """Its own launcher, whatever `mpirun` alone means here; skips where it is not installed."""
    name = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.mpich"}[family]
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    if family == "openmpi":
        return [program, *_OPEN_MPI_AS_ROOT, "--oversubscribe", "-np", str(count)]
    return [program, "-n", str(count)]


def mpi_library(family: str) -> str | None:
    """For mpi4py, which does not know all names of MPICH's library."""
    pattern = {"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}[family]
    found = [path for folder in _LIBRARIES for path in Path(folder).glob(f"**/{pattern}")]
    return str(found[0]) if found else None


def environment(**settings: str) -> dict[str, str]:
    started = ("HORO_", "HOROVOD_", "OMPI_", "PMI", "TORCHELASTIC_", "SLURM_")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(started)}
    return {
        **clean,
        "OMP_NUM_THREADS": "1",
        "HORO_STAGING": "64MiB",
        "PYTHONPATH": str(Path(__file__).parent),
        **settings,
    }


@contextmanager
def script_file(body: Callable[[], None], *parts: Callable[[], None]) -> Iterator[str]:
    """`parts` are functions that the body calls."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{body.__name__}.py"
        sources = [textwrap.dedent(inspect.getsource(part)) for part in parts]
        path.write_text("\n".join([PRELUDE, *sources, script_of(body)]), encoding="utf-8")
        yield str(path)


def start(command: Sequence[str], path: str, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, path],
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


Bodies = Callable[[], None] | Sequence[Callable[[], None]]


def run(command: Sequence[str], bodies: Bodies, *, succeeds: bool = True, **settings: str) -> str:
    """What all ranks said. Of several functions the first is run, and may call the others."""
    body, *parts = [bodies] if callable(bodies) else bodies
    with script_file(body, *parts) as path:
        done = subprocess.run(
            [*command, path],
            env=environment(**settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * LIMIT_SECONDS,
            check=False,
        )
    said = done.stdout + done.stderr
    assert (done.returncode == 0) == succeeds, f"exit code {done.returncode}\n{said}"
    return said


def mpirun(family: str, count: int, body: Bodies, *, succeeds: bool = True, **settings: str) -> str:
    return run([*mpi_command(family, count), sys.executable, "-u"], body, succeeds=succeeds, **settings)


def torchrun(flags: Sequence[str], body: Bodies, *, succeeds: bool = True, **settings: str) -> str:
    return run([sys.executable, "-m", "torch.distributed.run", *flags], body, succeeds=succeeds, **settings)
