"""Runs the suite that ships inside the torch wheel against the back end horo.

    python driver.py                      # all tests
    python driver.py --as gloo            # those that the suite has for gloo alone
    python driver.py test_all_reduce_sum  # some
    python driver.py --list passes.txt    # those of a list that are to be run so

Many tests ask for the name of the back end, and are skipped for one that the suite does not know. With --as they are
told another one's; they run on horo all the same, and on horo's monitored_barrier. Prints a line for each test, with
its outcome and, where it was skipped, the reason. The exit code is 1 if one failed. Ranks are forked off a process that
has imported torch: a test takes a fraction of a second.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

RANKS = 4
SECONDS_FOR_ONE = 60


def prepare(folder: str, name: str) -> None:
    """What the suite reads when it is imported."""
    for part in ("barrier", "test_dir"):
        os.makedirs(os.path.join(folder, part), exist_ok=True)
    os.environ.update(
        BACKEND=name,
        WORLD_SIZE=os.environ.get("WORLD_SIZE", str(RANKS)),
        TEMP_DIR=folder,
        OMP_NUM_THREADS="1",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(SECONDS_FOR_ONE),
    )


def load() -> type[unittest.TestCase]:
    import torch

    import horo.torch

    torch.set_num_threads(1)
    from torch.testing._internal import common_distributed

    for feature in ("ddp", "subgroup", "plugin"):
        common_distributed.DistTestCases.backend_feature[feature].add("horo")
    from torch.testing._internal.distributed import distributed_test as suite

    # Asked for again by tests that want 8 ranks of any but mpi; two would do.
    os.environ["BACKEND"] = "mpi"
    init = suite.dist.init_process_group

    def init_horo(backend: str, *arguments: object, **named: object) -> None:
        assert backend == suite.BACKEND
        init("horo", *arguments, **named)

    suite.dist.init_process_group = init_horo
    if suite.BACKEND == "gloo":
        suite.dist.monitored_barrier = horo.torch.monitored_barrier

    class TorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)
            torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()

    return TorchSuite


class Lines(unittest.TestResult):
    """One line for each test, as soon as it is over."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"passed": 0, "skipped": 0, "failed": 0}
        self._began = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._began = time.monotonic()

    def _tell(self, test: unittest.TestCase, outcome: str, why: str = "") -> None:
        self.counts[outcome] += 1
        seconds = time.monotonic() - self._began
        print(f"{outcome:8} {test.id().rsplit('.', 1)[-1]}  {seconds:.2f} s  {why}".rstrip(), flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self._tell(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._tell(test, "skipped", reason.splitlines()[0] if reason else "")

    def _fail(self, test: unittest.TestCase, error: object) -> None:
        kind, value, _ = error  # type: ignore[misc]
        words = [line for line in str(value).splitlines() if line.strip()]
        told = [line for line in words if "Error: " in line] or words or [""]
        self._tell(test, "failed", f"{kind.__name__}: {told[-1]}")
        if os.environ.get("SUITE_VERBOSE"):
            print(value, flush=True)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # type: ignore[override]
        super().addFailure(test, err)  # type: ignore[arg-type]
        self._fail(test, err)

    def addError(self, test: unittest.TestCase, err: object) -> None:  # type: ignore[override]
        super().addError(test, err)  # type: ignore[arg-type]
        self._fail(test, err)


def names_in(path: Path, name: str) -> list[str]:
    """Lines are the name of a test and the back end that it is defined for."""
    lines = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return [words[0] for words in lines if words and words[1] == name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--as", dest="name", default="horo")
    parser.add_argument("--list", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder, given.name)
        tests = load()
        every = unittest.TestLoader().getTestCaseNames(tests)
        wanted = given.names + (names_in(given.list, given.name) if given.list else [])
        unknown = [name for name in wanted if name not in every]
        for name in unknown:
            print(f"absent   {name}  this torch does not have it")
        result = Lines()
        for name in [name for name in wanted if name in every] or ([] if wanted else every):
            tests(name).run(result)
        print(", ".join(f"{count} {outcome}" for outcome, count in result.counts.items()))
        return 1 if result.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
