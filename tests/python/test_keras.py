"""The tests of tests/python/keras inside jobs of 1, 2 and 3 ranks, on each back end of Keras; and jobs that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest

SUITE = Path(__file__).parent / "keras"
LIMIT_SECONDS = 300
# Whose tests depend on the number of ranks; all others run on two.
EVERYWHERE = ("test_training.py", "test_sparse.py", "test_functions.py", "test_half.py", "test_jax.py")
FRAMEWORKS = ("tensorflow", "jax", "torch")
# A rank that waits for one that went another way must not wait for ever.
SETTINGS = {"KERAS_SUITE": "1", "HORO_STALL_ABORT": "60", "HORO_STALL_WARNING": "10", "OMP_NUM_THREADS": "1"}


def is_installed(name: str) -> bool:
    # The folders beside this file are namespace packages of these names; they have no origin.
    found = find_spec(name)
    return found is not None and found.origin is not None


needs_keras = pytest.mark.skipif(not is_installed("keras"), reason="Keras is not installed in this environment")


@pytest.fixture
def alone(tmp_path: Path):
    """Settings with which a framework is the only one: Keras imports others that it finds, which takes seconds."""

    def settings(*kept: str) -> dict[str, str]:
        hidden = [name for name in (*FRAMEWORKS, "keras") if name not in kept]
        (tmp_path / "sitecustomize.py").write_text(
            "from functools import partial\n"
            "from importlib.machinery import PathFinder\n"
            "found = PathFinder.find_spec\n"
            "def find_spec(name, path=None, target=None):\n"
            f"    return None if name in {hidden!r} else found(name, path, target)\n"
            "PathFinder.find_spec = partial(find_spec)\n"
        )
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
        return {**inherited, "PYTHONPATH": str(tmp_path), "KERAS_BACKEND": kept[0]}

    return settings


def run(count: int, settings: dict[str, str], *command: str) -> tuple[int, str]:
    """The exit code and what the ranks said. A job that takes too long is ended, and says how far it was."""
    job = subprocess.Popen(
        [jobs.launcher(), "run", "-np", str(count), sys.executable, "-u", *command],
        env=settings,
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
        output = f"{job.communicate(timeout=60)[0]}\nended after {LIMIT_SECONDS} s"
    return job.returncode, output


@needs_keras
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_keras_suite_passes_on_ranks(framework: str, count: int, alone) -> None:
    if not is_installed(framework):
        pytest.skip(f"{framework} is not installed in this environment")
    # -x: a rank that fails ends, or the others would wait for it in the next operation.
    suite = ["-m", "pytest", "-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
    files = [str(SUITE)] if count == 2 else [str(SUITE / name) for name in EVERYWHERE]
    code, output = run(count, {**alone(framework, "keras"), **SETTINGS}, *suite, *files)
    assert code == 0, output
    assert len([line for line in output.splitlines() if " passed" in line]) == count, output


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


@needs_keras
@pytest.mark.skipif(not is_installed("torch"), reason="torch is not installed in this environment")
def test_a_rank_that_raises_inside_fit_ends_the_job(alone) -> None:
    code, output = run(2, alone("torch", "keras"), "-c", TRAINING.format(raises=True))
    assert code != 0
    assert "this batch is broken" in output
    assert "came to the end" not in output


@needs_keras
@pytest.mark.skipif(not is_installed("torch"), reason="torch is not installed in this environment")
def test_ranks_with_different_numbers_of_batches_are_told_which_gradients_are_missing(alone) -> None:
    settings = {**alone("torch", "keras"), "HORO_STALL_WARNING": "1", "HORO_STALL_ABORT": "3"}
    # Rank 0 stays in the job, as one that validates does.
    code, output = run(2, settings, "-c", f"{TRAINING.format(raises=False)}\nhvd.allgather_object(0, name='the end')")
    assert code != 0
    assert "gradients.sequential/only/kernel" in output, output


@pytest.mark.parametrize(("module", "missing"), [("horo.keras", "keras"), ("horo.jax", "jax")])
def test_without_its_framework_it_says_what_to_install(module: str, missing: str, alone) -> None:
    program = (
        f"import horo\ntry:\n    import {module}\nexcept ModuleNotFoundError as error:\n    print(error.name, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=alone("none"), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(f"{missing} {module} needs"), done.stdout
    assert "pip install" in done.stdout
