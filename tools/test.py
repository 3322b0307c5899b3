#!/usr/bin/env python3
"""Runs ctest on a build folder and pytest on the installed package, and sums up every single test case.

Both wait much of their time: for ranks that are stopped, for limits to pass, for programs to start. So they run side by
side, ctest with half of the jobs. The last line reads "N passed, N failed". Durations go to BUILD/durations.tsv, which
.ci/run prints as a table.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Outcome:
    name: str
    seconds: float
    passed: int
    failed: int
    skipped: int = 0


def count_cases(path: Path) -> tuple[int, int, int] | None:
    """Passed, failed and skipped cases in a JUnit file; None when there is no readable one."""
    try:
        cases = ElementTree.parse(path).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError):
        return None
    passed = failed = skipped = 0
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def steady_addresses(build: Path) -> list[str]:
    """What starts the tests: sanitizers of GCC 12 and Clang 14 die where addresses have more than 28 random bits."""
    cache = build / "CMakeCache.txt"
    sanitized = cache.exists() and re.search(r"^HORO_SANITIZE:\w+=.", cache.read_text(), re.MULTILINE)
    if not sanitized or shutil.which("setarch") is None:
        return []
    steady = ["setarch", "--addr-no-randomize"]
    return steady if subprocess.run([*steady, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0 else []


def run_ctest(build: Path, jobs: int, pattern: str | None, python: str | None) -> list[Outcome]:
    cases = build / "gtest"
    shutil.rmtree(cases, ignore_errors=True)
    junit = build / "ctest.xml"
    junit.unlink(missing_ok=True)
    # "xml:FOLDER/" lets every GoogleTest program write FOLDER/PROGRAM.xml.
    environment = os.environ | {"GTEST_OUTPUT": f"xml:{cases}/", "GTEST_BRIEF": "1"}
    if python is not None:
        environment["TEST_PYTHON"] = python
    command = ["ctest", "--output-on-failure", "--output-junit", str(junit), "--parallel", str(jobs)]
    command += ["--tests-regex", pattern] if pattern else []
    # What it says would be among what pytest says, line by line.
    output = subprocess.PIPE if python is not None else None
    done = subprocess.run(
        steady_addresses(build) + command,
        cwd=build,
        env=environment,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        text=True,
        errors="replace",
        check=False,
    )
    if output:
        print(f"\n{done.stdout}", flush=True)
    try:
        programs = list(ElementTree.parse(junit).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return [Outcome("ctest", 0, 0, 1)]
    outcomes = [outcome_of(program, cases) for program in programs]
    if done.returncode != 0 and not any(outcome.failed for outcome in outcomes):
        outcomes.append(Outcome("ctest", 0, 0, 1))
    return outcomes


def outcome_of(program: ElementTree.Element, cases: Path) -> Outcome:
    name = program.get("name", "?")
    seconds = float(program.get("time", "0"))
    skipped = program.find("skipped")
    if skipped is not None and skipped.get("message", "").startswith("SKIP_"):  # Not one that cannot be started.
        return Outcome(name, seconds, 0, 0, 1)
    failed = program.get("status") != "run"
    counted = count_cases(cases / f"horo_{name}_test.xml")
    if counted is None:
        return Outcome(name, seconds, 0 if failed else 1, 1 if failed else 0)
    # A program that dies writes no file, or fails after its last case: that is one failure more.
    return Outcome(name, seconds, counted[0], counted[1] or int(failed), counted[2])


def run_pytest(build: Path) -> Outcome:
    junit = build / "pytest.xml"
    junit.unlink(missing_ok=True)
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", "tests/python"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    passed, failed, skipped = count_cases(junit) or (0, 0, 0)
    return Outcome("pytest", time.monotonic() - start, passed, failed or int(code != 0), skipped)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-python", action="store_true")
    parser.add_argument("--only", help="a regular expression on names of ctest's tests")
    arguments = parser.parse_args()
    build = arguments.build.resolve()

    if arguments.no_python:
        outcomes = run_ctest(build, arguments.jobs, arguments.only, None)
    else:
        half = max(1, arguments.jobs // 2)
        with ThreadPoolExecutor() as pool:  # sys.executable is where the package is installed.
            programs = pool.submit(run_ctest, build, half, arguments.only, sys.executable)
            python = run_pytest(build)
            outcomes = [*programs.result(), python]

    print()
    for outcome in outcomes:
        skipped = f", {outcome.skipped} skipped" if outcome.skipped else ""
        print(f"{outcome.name:24} {outcome.seconds:7.1f} s  {outcome.passed} passed, {outcome.failed} failed{skipped}")
    lines = [f"test {outcome.name}\t{outcome.seconds:.1f}\n" for outcome in outcomes]
    (build / "durations.tsv").write_text("".join(lines))
    failed = sum(outcome.failed for outcome in outcomes)
    skipped = sum(outcome.skipped for outcome in outcomes)
    if skipped:
        print(f"{skipped} skipped")
    print(f"{sum(outcome.passed for outcome in outcomes)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
