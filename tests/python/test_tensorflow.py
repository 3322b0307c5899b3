"""The tests of tests/python/tensorflow inside jobs of 1, 2 and 3 ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest

SUITE = Path(__file__).parent / "tensorflow"

# The folder beside this file is a namespace package of that name; it has no origin.
tensorflow = find_spec("tensorflow")
pytestmark = pytest.mark.skipif(
    tensorflow is None or tensorflow.origin is None, reason="TensorFlow is not installed in this environment"
)


def run_suite(count: int, *arguments: str) -> tuple[int, str]:
    return jobs.run_suite(SUITE, "TENSORFLOW_SUITE", count, *arguments)


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
