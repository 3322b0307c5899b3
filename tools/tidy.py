#!/usr/bin/env python3
"""Runs clang-tidy over the product's C++ files, as many as fit into a time limit, and remembers which are clean.

A file is checked again only when it, a header of ours that it reaches, its flags, the rules or clang-tidy changed.
Files that differ from the last commit but one come first, so a limit cuts off the files least likely to be broken.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "tidy"
PRODUCT = ("horo/", "cli/", "plugins/", "examples/")
# Headers that g++ has compiled, and a warning that it alone has.
OF_GCC = re.compile(r" -Winvalid-pch -include \S+/cmake_pch\.hxx| -Wno-maybe-uninitialized\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*"((?:horo|cli|plugins)/[^"]+)"', re.MULTILINE)


@cache
def contents(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@cache
def reached(path: Path) -> frozenset[Path]:
    """The file and our headers that it includes, directly or not."""
    seen: set[Path] = set()
    todo = [path]
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            todo += [ROOT / name for name in INCLUDE.findall(contents(file).decode(errors="replace"))]
    return frozenset(seen)


def key_of(entry: dict, tidy_version: bytes) -> str:
    digest = hashlib.sha256(tidy_version + contents(ROOT / ".clang-tidy") + entry["command"].encode())
    for file in sorted(reached(Path(entry["file"]))):
        digest.update(str(file.relative_to(ROOT)).encode() + contents(file))
    return digest.hexdigest()


def changed_files() -> set[str]:
    git = ["git", "diff", "--name-only", "HEAD~1"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    return set(listed.stdout.split()) if listed.returncode == 0 else set()


def entries(build: Path) -> list[dict]:
    chosen = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        relative = os.path.relpath(entry["file"], ROOT)
        if relative.startswith(PRODUCT) and not relative.endswith(("_test.cc", "_fuzz.cc", "_bench.cc")):
            chosen.append(entry | {"relative": relative, "command": OF_GCC.sub("", entry["command"])})
    return chosen


def check(tidy: str, database: Path, entry: dict, deadline: float) -> tuple[str, str | None]:
    """The file and what is wrong with it: "" for nothing, None when there was no time left."""
    left = deadline - time.monotonic()
    if left <= 0:
        return entry["relative"], None
    command = [tidy, "--quiet", "-p", str(database), entry["file"]]
    try:
        limit = None if left == float("inf") else left
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return entry["relative"], None
    return entry["relative"], "" if result.returncode == 0 else result.stdout + result.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "dev")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop starting new files after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()

    tidy = next((path for name in ("clang-tidy-14", "clang-tidy") if (path := shutil.which(name))), None)
    if tidy is None:
        print("tidy: clang-tidy is not installed; run tools/setup.sh lint")
        return 1
    version = subprocess.run([tidy, "--version"], capture_output=True, check=True).stdout
    CACHE.mkdir(parents=True, exist_ok=True)
    every = entries(arguments.build)
    database = arguments.build / "tidy"
    database.mkdir(exist_ok=True)
    commands = [{key: entry[key] for key in ("directory", "command", "file")} for entry in every]
    (database / "compile_commands.json").write_text(json.dumps(commands))
    keys = {entry["relative"]: key_of(entry, version) for entry in every}
    changed = changed_files()
    todo = [entry for entry in every if not (CACHE / keys[entry["relative"]]).exists()]
    todo.sort(key=lambda entry: (entry["relative"] not in changed, entry["relative"]))

    deadline = time.monotonic() + arguments.seconds
    failed = skipped = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for future in as_completed([pool.submit(check, tidy, database, entry, deadline) for entry in todo]):
            relative, problem = future.result()
            if problem is None:
                skipped += 1
            elif problem == "":
                (CACHE / keys[relative]).touch()
            else:
                failed += 1
                print(problem)
    done = len(todo) - skipped
    clean = len(every) - len(todo)
    print(f"tidy: {len(every)} files, {clean} known to be clean, {done} checked, {failed} with findings")
    if skipped:
        print(f"tidy: {skipped} files did not fit into {arguments.seconds:.0f} s; `make lint-all` checks them")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
