"""The suite that ships inside the torch wheel, on the back end horo: tests that pass go on passing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "torch_suite"
LIMIT_SECONDS = 600
NAMES = ("horo", "gloo", "mpi")  # That the tests are told; see driver.py.

torch = find_spec("torch")
pytestmark = [
    pytest.mark.skipif(torch is None or torch.origin is None, reason="PyTorch is not installed in this environment"),
    pytest.mark.skipif(find_spec("expecttest") is None, reason="expecttest is not installed in this environment"),
]


def run(*words: str) -> str:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HORO_", "HOROVOD_"))}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "driver.py"), *words],
        env=inherited,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT_SECONDS,
        check=False,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith(("passed ", "skipped ", "failed ", "absent "))]
    assert done.returncode == 0, "\n".join(told) + done.stderr[-5000:]
    return "\n".join(told)


def names(path: str, told: str) -> list[str]:
    lines = (line.split("#")[0].split() for line in (FOLDER / path).read_text().splitlines())
    return [words[0] for words in lines if words and words[1] == told]


@pytest.mark.parametrize("told", NAMES)
def test_what_passes_goes_on_passing(told: str) -> None:
    # All of them take about a minute and a half on two idle cores; the quick list stands for each of their kinds.
    path = "passes.txt" if os.environ.get("LONG_TESTS") else "quick.txt"
    wanted = names(path, told)
    out = run("--as", told, "--list", str(FOLDER / path))
    assert out.count("passed ") == len(wanted), out


def test_the_lists_have_every_test_once() -> None:
    everything = [
        words[0]
        for path in ("passes.txt", "not_applicable.txt", "fails.txt")
        for line in (FOLDER / path).read_text().splitlines()
        if (words := line.split("#")[0].split())
    ]
    assert len(everything) == len(set(everything))
    assert len(everything) >= 285
    quick = {name for told in NAMES for name in names("quick.txt", told)}
    assert quick <= set(everything)
