"""The tests of tests/python/keras inside jobs of ranks, on each back end of Keras; and jobs that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

SUITE = Path(__file__).parent / "keras"
# Whose tests depend on the number of ranks; all others run on two. Without LONG_TESTS torch, the quickest to import,
# stands for the other back ends on one and three, but for what JAX alone has.
EVERYWHERE = ("test_training.py", "test_sparse.py", "test_functions.py", "test_half.py", "test_jax.py")

needs_keras = pytest.mark.skipif(not jobs.is_installed("keras"), reason="Keras is not installed in this environment")


@needs_keras
@pytest.mark.parametrize("framework", ["tensorflow", "jax", "torch"])
def test_the_keras_suite_passes_on_ranks(framework: str, tmp_path: Path) -> None:
    if not jobs.is_installed(framework):
        pytest.skip(f"{framework} is not installed in this environment")
    settings = {**jobs.suite_settings("KERAS_SUITE"), **jobs.alone(tmp_path, framework, "keras")}
    # Most of the time on JAX is XLA's, which optimises programs that run twice; the examples run them as users do.
    settings |= {"KERAS_BACKEND": framework, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    if framework == "torch" or os.environ.get("LONG_TESTS"):
        jobs.run_in_turn(SUITE, settings, *EVERYWHERE)
    elif framework == "jax":
        jobs.run_in_turn(SUITE, settings, "test_jax.py")
    else:
        code, output = jobs.run_suite(SUITE, "KERAS_SUITE", 2, str(SUITE), settings=settings)
        assert code == 0, output
        assert len([line for line in output.splitlines() if " passed" in line]) == 2, output


TRAINING = """
import keras, numpy
import horo.keras as hvd
hvd.init()
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="only")])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
def batches(count):
    for number in range(count):
        if number == 3 and {raises} and hvd.rank() == 1:
            raise RuntimeError("this batch is broken")
        yield numpy.ones((2, 2), "float32"), numpy.ones((2, 1), "float32")
model.fit(batches(6 if {raises} else 4 + 2 * hvd.rank()), verbose=0)
print("came to the end")
"""


def run(folder: Path, program: str, **settings: str) -> tuple[int, str]:
    """Two ranks of a program on torch, which is the quickest to import."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    variables = {**inherited, **jobs.alone(folder, "torch", "keras"), "KERAS_BACKEND": "torch", **settings}
    return jobs.run_command(2, "-c", program, settings=variables, folder=folder, seconds=300)


@needs_keras
@pytest.mark.skipif(not jobs.is_installed("torch"), reason="torch is not installed in this environment")
def test_a_rank_that_raises_inside_fit_ends_the_job(tmp_path: Path) -> None:
    code, output = run(tmp_path, TRAINING.format(raises=True))
    assert code != 0
    assert "this batch is broken" in output
    assert "came to the end" not in output


@needs_keras
@pytest.mark.skipif(not jobs.is_installed("torch"), reason="torch is not installed in this environment")
def test_ranks_with_different_numbers_of_batches_are_told_which_gradients_are_missing(tmp_path: Path) -> None:
    # Rank 0 stays in the job, as one that validates does.
    program = f"{TRAINING.format(raises=False)}\nhvd.allgather_object(0, name='the end')"
    code, output = run(tmp_path, program, HORO_STALL_WARNING="1", HORO_STALL_ABORT="3")
    assert code != 0
    assert "gradients.sequential/only/kernel" in output, output


def said_by(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **jobs.alone(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_keras_2_is_refused_at_the_import(tmp_path: Path) -> None:
    program = (
        "import sys, types\nsys.modules['keras'] = types.SimpleNamespace(__version__='2.15.0')\n"
        "try:\n    import horo.keras\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    )
    words = "HorovodVersionMismatchError horo was made for Keras 3, but 2.15.0 is installed"
    assert said_by(program, tmp_path).startswith(words)


@pytest.mark.parametrize(("module", "missing"), [("horo.keras", "keras"), ("horo.jax", "jax")])
def test_without_its_framework_it_says_what_to_install(module: str, missing: str, tmp_path: Path) -> None:
    program = (
        f"import horo\ntry:\n    import {module}\nexcept ModuleNotFoundError as error:\n    print(error.name, error)"
    )
    said = said_by(program, tmp_path)
    assert said.startswith(f"{missing} {module} needs"), said
    assert "pip install" in said
