"""Every example for Python runs, its loss falls, and all ranks end with equal parameters (which each checks itself)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest
from jobs import launcher, long

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"
LIMIT_SECONDS = 120
OUTCOME = re.compile(r"(\d) ranks: loss ([0-9.]+) -> ([0-9.]+)(?:, accuracy ([0-9.]+))?, all equal")


def run(name: str, ranks: int, *words: str, frameworks: tuple[str, ...] = ("torch",), **settings: str) -> str:
    """What the ranks say. They find these frameworks alone, as where no others are installed."""
    command = [launcher(), "run", "-np", str(ranks), sys.executable, str(FOLDER / name), *words]
    with tempfile.TemporaryDirectory() as folder:
        settings |= jobs.alone(Path(folder), *frameworks)
        done = subprocess.run(
            command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(out: str, ranks: int, accuracy: float | None) -> None:
    found = OUTCOME.search(out)
    assert found is not None, out
    assert int(found[1]) == ranks
    assert float(found[3]) < float(found[2]) * 0.9, out
    assert accuracy is None or float(found[4]) >= accuracy, out


def installed(framework: str) -> bool:
    """Without importing it; the folder beside this file is a namespace package of that name, without an origin."""
    found = find_spec(framework)
    return found is not None and found.origin is not None


def test_numpy_alone_trains() -> None:
    assert "2 ranks: the weights are off by" in run("train.py", 2)


@pytest.mark.parametrize(
    ("name", "ranks", "words", "accuracy"),
    [
        ("torch_digits.py", 2, ["--epochs", "3"], 0.9),
        ("torch_accumulation.py", 2, ["--epochs", "4"], 0.9),
        ("torch_mixed_precision.py", 2, ["--epochs", "3"], 0.9),
        ("torch_adasum.py", 2, ["--epochs", "3"], 0.9),
        ("torch_process_sets.py", 4, ["--epochs", "3"], 0.9),
        ("torch_sharded_optimizer.py", 2, ["--epochs", "3"], 0.9),
        ("torch_elastic.py", 2, ["--epochs", "3"], 0.9),
        ("torch_ddp_digits.py", 2, ["--epochs", "3"], 0.9),
        ("torch_ddp_uneven_inputs.py", 2, ["--epochs", "3"], 0.9),
        ("torch_distributed_ddp.py", 2, ["--epochs", "8"], 0.85),
        ("torch_vae.py", 2, ["--distributed_backend", "horo"], None),
        pytest.param("torch_vae.py", 2, ["--distributed_backend", "torch"], None, marks=long),
    ],
)
def test_an_example_learns(name: str, ranks: int, words: list[str], accuracy: float | None) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    # One is a script as people write it.
    frameworks = ("torch", "sklearn") if name == "torch_distributed_ddp.py" else ("torch",)
    check(run(name, ranks, *words, frameworks=frameworks), ranks, accuracy)


@pytest.mark.parametrize(
    ("name", "ranks", "words", "accuracy"),
    [
        ("tensorflow_digits.py", 2, ["--epochs", "4"], 0.9),
        ("tensorflow_embeddings.py", 2, ["--epochs", "4"], 0.85),
        ("tensorflow_accumulation.py", 2, ["--epochs", "4"], 0.9),
        ("tensorflow_process_sets.py", 2, ["--epochs", "4"], 0.9),
    ],
)
def test_an_example_of_tensorflow_learns(name: str, ranks: int, words: list[str], accuracy: float) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    if not installed("tensorflow"):
        pytest.skip("TensorFlow is not installed in this environment")
    check(run(name, ranks, *words, frameworks=("tensorflow", "keras")), ranks, accuracy)


@pytest.mark.parametrize("backend", [pytest.param("tensorflow", marks=long), "jax", "torch"])
def test_an_example_of_keras_learns_on_every_back_end(backend: str) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    if not (installed("keras") and installed(backend)):
        pytest.skip(f"Keras or {backend} is not installed in this environment")
    check(run("keras_digits.py", 2, "--epochs", "6", frameworks=(backend, "keras"), KERAS_BACKEND=backend), 2, 0.85)


def test_an_example_of_jax_learns() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    if not installed("jax"):
        pytest.skip("JAX is not installed in this environment")
    check(run("jax_digits.py", 2, frameworks=("jax",)), 2, 0.85)


def test_a_script_for_horovod_and_keras_learns(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    if not installed("tensorflow"):
        pytest.skip("TensorFlow is not installed in this environment")
    frameworks = ("tensorflow", "keras", "sklearn")
    out = run("keras_horovod_script.py", 2, "--epochs", "4", "--checkpoints", str(tmp_path), frameworks=frameworks)
    losses = [float(loss) for loss in re.findall(r" - loss: ([0-9.]+)", out)]
    assert len(losses) == 4, out
    assert losses[-1] < losses[0] / 2, losses
    assert "finished gradual learning rate warmup to 0.002" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"checkpoint-{epoch}.h5" for epoch in (1, 2, 3, 4)]


def test_hooks_send_less_and_learn_as_documented() -> None:
    """docs/ddp.md says how much each may lose; one image of the test set is 0.0028."""
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    out = run("torch_ddp_comm_hooks.py", 2, "--hook", "all")
    shares = {hook: float(share) for hook, share in re.findall(r"(\w+): ([0-9.]+) of the gradients' bytes", out)}
    accuracies = [float(found[3]) for found in OUTCOME.findall(out)]
    exact, fp16, bf16, int8, powersgd, median = accuracies
    assert exact >= 0.9, out
    assert min(fp16, bf16, int8, median) >= exact - 0.01, out  # The median of two is their average.
    assert powersgd >= exact - 0.04, out
    assert shares["allreduce"] == 1.0, out
    assert shares["fp16"] == shares["bf16"] == 0.5, out
    assert 0.25 <= shares["int8"] < 0.255, out  # And one scale for each tensor.
    assert shares["powersgd"] < 0.2, out


def test_a_script_for_horovod_learns() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed in this environment")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed in this environment")
    out = run("torch_horovod_script.py", 2, "--epochs", "4", frameworks=("torch", "sklearn"))
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([0-9.]+)", out)]
    assert len(losses) == 4, out
    assert losses[-1] < losses[0] / 2, losses
    assert "2 ranks" in out


def test_no_example_is_left_out() -> None:
    tested = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    examples = {path.name for path in FOLDER.glob("*.py")} - {
        "digits.py",
        "digits_data.py",
        "digits_tf.py",
    }  # What the others share.
    assert [name for name in sorted(examples) if f'"{name}"' not in tested] == []
