#!/usr/bin/env python3
"""Plants each bug of tests/planted in a copy of the tree and sees that the test it names finds it.

tools/planted.py [NAME...]   builds the copy (build/planted), runs each test without its bug (it must pass) and with it
                             (it must fail); several minutes
tools/planted.py --check     only whether every patch applies, names a test that exists and stands in docs/testing.md
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "tests" / "planted"
TREE = ROOT / "build" / "planted"
BUILD = TREE / "build" / "dev"  # Where it is in the tree itself, and with the same flags: the compiler cache helps.
LIMIT_SECONDS = 300
LEAST = 12


@dataclass
class Planted:
    path: Path
    what: str
    target: str
    test: str

    @property
    def name(self) -> str:
        return self.path.stem


def read(path: Path) -> Planted:
    head = path.read_text().split("diff --git", 1)[0]
    fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    return Planted(path, fields["what"], fields["target"], fields["test"])


def apply(planted: Planted, folder: Path, *flags: str) -> bool:
    # From within a repository git apply would take the paths as those of the repository.
    environment = os.environ | {"GIT_DIR": os.devnull}
    command = ["git", "apply", "--whitespace=nowarn", *flags, str(planted.path)]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode == 0


def test_exists(planted: Planted) -> bool:
    suite, _, case = planted.test.partition(".")
    pattern = re.compile(rf"TEST(_F|_P)?\(\s*{suite},\s*{case.rstrip('*')}")
    return any(pattern.search(path.read_text()) for path in source_files() if path.name.endswith("_test.cc"))


def source_files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        return [path for folder in ("horo", "cli", "sim", "tests") for path in (ROOT / folder).rglob("*.cc")]
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def check(all_planted: list[Planted]) -> list[str]:
    page = (ROOT / "docs" / "testing.md").read_text()
    wrong = [] if len(all_planted) >= LEAST else [f"only {len(all_planted)} bugs are planted"]
    for planted in all_planted:
        if not apply(planted, ROOT, "--check"):
            wrong.append(f"{planted.name}: the patch does not apply any more; make it anew")
        if not test_exists(planted):
            wrong.append(f"{planted.name}: there is no test {planted.test}")
        if f"| {planted.name} |" not in page:
            wrong.append(f"{planted.name}: not in the table of docs/testing.md")
    return wrong


def copy_tree() -> None:
    """Copies what has changed; builds stay incremental."""
    wanted = {path.relative_to(ROOT) for path in source_files()}
    listed = [path for path in TREE.rglob("*") if path.is_file() and not path.is_relative_to(TREE / "build")]
    for old in (path for path in listed if path.relative_to(TREE) not in wanted):
        old.unlink()
    for name in wanted:
        copy = TREE / name
        if copy.exists() and copy.read_bytes() == (ROOT / name).read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy)


def configure() -> None:
    command = ["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    command += ["-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1", "-DHORO_WERROR=ON"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def build(target: str) -> bool:
    environment = os.environ | {"CCACHE_BASEDIR": str(TREE), "CCACHE_NOHASHDIR": "1", "LC_ALL": "C.UTF-8"}
    command = ["cmake", "--build", BUILD, "--target", target]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout[-4000:])
    return done.returncode == 0


def passes(planted: Planted) -> bool:
    program = next(path for path in BUILD.rglob(planted.target) if path.is_file())
    command = [str(program), f"--gtest_filter={planted.test}", "--gtest_brief=1"]
    try:
        with (BUILD / f"{planted.name}.log").open("w") as log:
            return subprocess.run(command, stdout=log, stderr=log, timeout=LIMIT_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def try_out(planted: Planted) -> str:
    if not build(planted.target) or not passes(planted):
        return "BROKEN: the test fails without the bug"
    if not apply(planted, TREE):
        return "BROKEN: the patch does not apply"
    try:
        if not build(planted.target):
            return "BROKEN: does not compile"
        return "NOT FOUND" if passes(planted) else "found"
    finally:
        apply(planted, TREE, "--reverse")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--check", action="store_true", help="build and run nothing")
    arguments = parser.parse_args()
    all_planted = [read(path) for path in sorted(PATCHES.glob("*.patch"))]
    wrong = check(all_planted)
    for line in wrong:
        print(f"planted: {line}")
    if arguments.check or wrong:
        print(f"planted: {len(all_planted)} patches, {len(wrong)} problems")
        return 1 if wrong else 0
    TREE.mkdir(parents=True, exist_ok=True)
    copy_tree()
    configure()
    missed = 0
    for planted in sorted(all_planted, key=lambda one: one.target):
        if arguments.names and planted.name not in arguments.names:
            continue
        verdict = try_out(planted)
        missed += verdict != "found"
        print(f"{planted.name:32} {verdict:10} {planted.test}", flush=True)
    print(f"planted: {missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
