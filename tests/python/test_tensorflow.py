"""The tests of tests/python/tensorflow inside jobs of 1, 2 and 3 ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest

SUITE = Path(__file__).parent / "tensorflow"
LIMIT_SECONDS = 480

# The folder beside this file is a namespace package of that name; it has no origin.
tensorflow = find_spec("tensorflow")
pytestmark = pytest.mark.skipif(
    tensorflow is None or tensorflow.origin is None, reason="TensorFlow is not installed in this environment"
)


def run_suite(count: int, *arguments: str) -> tuple[int, str]:
    """The exit code and what the ranks said. A job that takes too long is killed, and says how far it was."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    # A rank that waits for one that went another way must not wait for ever.
    settings = {"TENSORFLOW_SUITE": "1", "HORO_STALL_ABORT": "60", "HORO_STALL_WARNING": "10", "OMP_NUM_THREADS": "1"}
    # -x: a rank that fails ends, or the others would wait for it in the next operation.
    suite = [sys.executable, "-u", "-m", "pytest", "-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
    job = subprocess.Popen(
        [jobs.launcher(), "run", "-np", str(count), *suite, *arguments],
        env={**inherited, **settings},
        cwd=SUITE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = job.communicate(timeout=LIMIT_SECONDS)[0]
    except subprocess.TimeoutExpired:
        job.send_signal(signal.SIGTERM)  # The launcher ends its ranks.
        output = f"{job.communicate(timeout=60)[0]}\nkilled after {LIMIT_SECONDS} s"
    return job.returncode, output


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_tensorflow_suite_passes_on_ranks(count: int) -> None:
    code, output = run_suite(count, str(SUITE))
    assert code == 0, output
    passed = [line for line in output.splitlines() if " passed" in line]
    assert len(passed) == count, output


def without_tensorflow(folder: Path, program: str) -> str:
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tensorflow':\n"
        "            raise ModuleNotFoundError(\"No module named 'tensorflow'\", name='tensorflow')\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("name", ["horo.tensorflow", "horovod.tensorflow"])
def test_without_tensorflow_it_says_what_to_do(tmp_path: Path, name: str) -> None:
    said = without_tensorflow(
        tmp_path,
        "import horo, importlib.util\n"
        f"assert importlib.util.find_spec('{name}') is not None\n"
        f"try:\n    import {name}\nexcept ModuleNotFoundError as error:\n    print(error.name, error)",
    )
    assert said.startswith("tensorflow horo.tensorflow needs TensorFlow")
    assert "pip install tensorflow-cpu" in said
