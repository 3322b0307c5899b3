"""The tests of tests/python/torch inside jobs of 3 ranks, and some of them on 1 and 2."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jobs
import pytest

SUITE = Path(__file__).parent / "torch"
# What divides its work by the number of ranks runs alone and on two as well. With LONG_TESTS all does, on four too.
EVERYWHERE = ("test_collectives.py", "test_ddp.py", "test_ddp_join.py", "test_optimizer.py", "test_sharded.py")

# The folder beside this file is a namespace package of that name; it has no origin.
torch = find_spec("torch")
pytestmark = pytest.mark.skipif(
    torch is None or torch.origin is None, reason="PyTorch is not installed in this environment"
)


def run_suite(count: int, *arguments: str) -> tuple[int, str]:
    return jobs.run_suite(SUITE, "TORCH_SUITE", count, *arguments)


@pytest.mark.parametrize("count", [1, 2, 3, pytest.param(4, marks=jobs.long)])
def test_the_torch_suite_passes_on_ranks(count: int) -> None:
    some = count != 3 and not os.environ.get("LONG_TESTS")
    code, output = run_suite(count, *([str(SUITE / name) for name in EVERYWHERE] if some else [str(SUITE)]))
    assert code == 0, output
    passed = [line for line in output.splitlines() if " passed" in line]
    assert len(passed) == count, output


def test_a_rank_that_fails_ends_the_suite_and_is_shown(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((SUITE / "conftest.py").read_text())
    (tmp_path / "test_odd.py").write_text(
        "def test_odd(hvd):\n    assert hvd.rank() != 1, 'rank 1 is odd'\n    hvd.barrier()\n"
        "def test_next(hvd):\n    pass\n"
    )
    code, output = run_suite(2, str(tmp_path))
    assert code != 0
    assert "rank 1 is odd" in output


def test_without_torch_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    program = (
        "import horo\ntry:\n    import horo.torch\nexcept ModuleNotFoundError as error:\n    print(error.name, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("torch horo.torch needs PyTorch")
    assert "pip install torch" in done.stdout


def test_importing_it_does_no_work() -> None:
    program = (
        "import sys, threading, torch\n"
        "before = set(sys.modules)\n"
        "import horo.torch\n"
        "added = {name for name in set(sys.modules) - before if not name.startswith('horo')}\n"
        "print(threading.active_count(), sorted(name for name in added if name.startswith('torch')))\n"
        "assert 'torch._dynamo' not in sys.modules and 'torch.distributed.distributed_c10d' not in added\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 []\n"
