"""The tests of tests/python/tensorflow inside jobs of 1, 2 and 3 ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

SUITE = Path(__file__).parent / "tensorflow"
# Whose tests depend on the number of ranks; all others run on two. Without LONG_TESTS those alone that do most.
EVERYWHERE = (
    ("test_operations.py", "test_derivatives.py", "test_graphs.py")
    if os.environ.get("LONG_TESTS")
    else ("test_operations.py",)
)

pytestmark = pytest.mark.skipif(
    not jobs.is_installed("tensorflow"), reason="TensorFlow is not installed in this environment"
)


def test_the_tensorflow_suite_passes_on_one_two_and_three_ranks(tmp_path: Path) -> None:
    settings = {**jobs.suite_settings("TENSORFLOW_SUITE"), **jobs.alone(tmp_path, "tensorflow", "keras")}
    jobs.run_in_turn(SUITE, settings, *EVERYWHERE)


def without_tensorflow(folder: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **jobs.alone(folder)},
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
